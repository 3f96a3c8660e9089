"""What all codecs of this package share: input checks, the sidecar of outliers, counting of bytes.

A codec turns (heads, tokens, head_dim) into named arrays and back. `nbytes` is the sum of those
arrays and nothing else, so a codec that forgets to hold something cannot decode.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import InputError, SpecError
from kvassay.vector_codec import FITTED, RESIDUAL, Encoded, VectorCodec

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
Held = dict[str, NDArray[Any]]
#: (heads, tokens, head_dim)
Shape = tuple[int, int, int]

FP16_MAX: Final = 65504.0


class Codec(VectorCodec):
    """A VectorCodec of (heads, tokens, head_dim) arrays.

    outliers: channels a vector that are taken out before the method sees it, those of largest
    magnitude, and held as (u8 index, fp16 value). seed: of the method's random transforms.
    """

    #: Whether it fits itself to data; a matter of parameters for some.
    learns: bool = False

    def __init__(
        self, *, bits: float, head_dim: int, role: str, outliers: int = 0, seed: int = 0
    ) -> None:
        self.bits, self.head_dim, self.role = bits, head_dim, role
        self.outliers = self._integer("outliers", outliers, 0, head_dim // 2)
        self.seed = self._integer("seed", seed, 0, 2**63 - 1)
        self._fitted: Held | None = None
        self._fitted_heads = 0

    @property
    def levels(self) -> int:
        """2^bits, for codecs of whole bits."""
        return 1 << int(self.bits)

    def fit(self, x: F32) -> Self:
        if not self.learns:
            return self
        other = copy.copy(self)
        rows = self._rows(x)
        if self.outliers:  # what they leave behind is what the method will meet
            rows = rows.copy()
            _take_outliers(rows, self.outliers)
        other._fitted = {f"{FITTED} {name}": a for name, a in self._learn(rows).items()}
        other._fitted_heads = len(rows)
        return other

    def encode(self, x: F32) -> Encoded:
        rows = self._rows(x)
        if self.learns and self._fitted is None:
            return self.fit(x).encode(x)
        if self._fitted and len(rows) != self._fitted_heads:
            raise InputError(
                f"encode: x has {len(rows)} heads, the codec was fitted on {self._fitted_heads}; "
                f"fit it on these heads"
            )
        held: Held = dict(self._fitted or {})
        if self.outliers:
            rows = rows.copy()
            held |= _take_outliers(rows, self.outliers)
        held |= self._pack(rows)
        return EncodedArrays(self, x.shape, held)

    # --- what a method implements ------------------------------------------------------------

    @abstractmethod
    def _pack(self, x: F32) -> Held:
        """The arrays that hold x (heads, tokens, head_dim)."""

    @abstractmethod
    def _unpack(self, held: Held, shape: Shape) -> F32:
        """x of that shape, as the arrays give it back."""

    def _score(self, held: Held, shape: Shape, q: F32) -> F32:
        """Products (heads, n, tokens) of q (heads, n, head_dim), by default with the decoded x."""
        scores: F32 = q @ self._unpack(held, shape).swapaxes(1, 2)
        return scores

    def _learn(self, x: F32) -> Held:
        """What a codec that learns keeps of x."""
        raise NotImplementedError

    def _learnt(self, name: str) -> NDArray[Any]:
        if self._fitted is None:
            raise RuntimeError(f"{name} is asked for before the codec has learnt it")
        return self._fitted[f"{FITTED} {name}"]

    # --- checks ---------------------------------------------------------------------------------

    def _refuse(self, what: str, error: type[Exception] = SpecError) -> Exception:
        return error(f"codec {type(self).__name__}: {what}")

    def _integer(self, name: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise self._refuse(f"{name} {value!r} is not an integer")
        if not low <= value <= high:
            raise self._refuse(f"{name} {value} is outside {low} .. {high}")
        return int(value)

    def _choice(self, name: str, value: Any, choices: tuple[str, ...]) -> str:
        if value not in choices:
            raise self._refuse(f"{name} {value!r} is not one of {', '.join(choices)}")
        return str(value)

    def _rows(self, x: Any) -> F32:
        """x as contiguous float32 (heads, tokens, head_dim)."""
        _check_array("encode: x", x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.head_dim or 0 in x.shape:
            raise InputError(
                f"encode: x has shape {x.shape}; expected (vectors, {self.head_dim}) or (tokens, "
                f"heads, {self.head_dim}), none of them empty"
            )
        grid = x if x.ndim == 3 else x[:, np.newaxis]
        good = np.abs(grid) <= FP16_MAX
        if not good.all():
            token, head, channel = (int(i) for i in np.argwhere(~good)[0])
            raise InputError(
                f"encode: x is {grid[token, head, channel]} at token {token}, head {head}, channel "
                f"{channel}; values must be finite and at most {FP16_MAX:g} in magnitude"
            )
        return np.ascontiguousarray(grid.swapaxes(0, 1))


class EncodedArrays(Encoded):
    """The arrays of a codec, and how to read them."""

    def __init__(self, codec: Codec, shape: tuple[int, ...], held: Held) -> None:
        self.shape, self.held, self._codec = shape, held, codec
        heads = shape[1] if len(shape) == 3 else 1
        self._grid: Shape = (heads, shape[0], shape[-1])

    @property
    def parts(self) -> Mapping[str, int]:
        return {name: array.nbytes for name, array in self.held.items()}

    def decode(self) -> F32:
        out: F32 = self._decoded().swapaxes(0, 1).reshape(self.shape)
        return out

    def _decoded(self) -> F32:
        x = self._codec._unpack(self.held, self._grid)
        if self._codec.outliers:
            where = self.held["outlier channels"].astype(np.intp)
            np.put_along_axis(x, where, f32(self.held["outlier values"]), axis=-1)
        return x

    def score(self, q: F32) -> F32:
        heads, _, d = self._grid
        _check_array("score: q", q)
        one = (d,) if len(self.shape) == 2 else (heads, d)
        if q.shape not in (one, (len(q), *one)) or not len(q):
            raise InputError(
                f"score: q has shape {q.shape}; expected {one} or (n, {', '.join(map(str, one))})"
            )
        if not np.isfinite(q).all():
            raise InputError("score: q holds NaN or infinity; queries must be finite")
        rows = np.ascontiguousarray(q.reshape(-1, heads, d).swapaxes(0, 1))
        if self._codec.outliers:
            scores = rows @ self._decoded().swapaxes(1, 2)
        else:
            scores = self._codec._score(self.held, self._grid, rows)
        batch = scores.astype(np.float32).swapaxes(0, 1)
        if len(self.shape) == 2:
            batch = batch[:, 0]
        return batch if q.shape != one else batch[0]


def f16(what: str, values: NDArray[Any]) -> NDArray[np.float16]:
    """Scales as fp16; raises InputError where one is too large for it."""
    with np.errstate(over="ignore"):
        out = values.astype(np.float16)
    if not np.isfinite(out).all():
        raise InputError(
            f"encode: {what} of {float(np.abs(values).max()):g} does not fit fp16 (at most "
            f"{FP16_MAX:g}); scale x down, and the queries up"
        )
    return out


def f32(held: NDArray[Any]) -> F32:
    """Stored numbers as float32."""
    return held.astype(np.float32)


def residual(tail: F32) -> Held:
    """The newest tokens (heads, n, head_dim) that no group took in, as fp16; nothing for none."""
    return {RESIDUAL: tail.astype(np.float16)} if tail.shape[1] else {}


def with_residual(sealed: F32, held: Held) -> F32:
    """Decoded tokens with the fp16 ones behind them."""
    tail = held.get(RESIDUAL)
    return sealed if tail is None else np.concatenate([sealed, f32(tail)], axis=1)


def _check_array(what: str, x: Any) -> None:
    if not isinstance(x, np.ndarray):
        raise InputError(f"{what}: expected a numpy array, got {type(x).__name__}")
    if x.dtype != np.float32:
        raise InputError(
            f"{what}: dtype {x.dtype}; expected float32, convert with .astype(np.float32)"
        )


def _take_outliers(x: F32, count: int) -> Held:
    """The largest channels of each vector, which are set to 0 in x."""
    where = np.argpartition(np.abs(x), -count, axis=-1)[..., -count:]
    values = np.take_along_axis(x, where, axis=-1)
    np.put_along_axis(x, where, np.float32(0), axis=-1)
    return {
        "outlier channels": where.astype(np.uint8),
        "outlier values": values.astype(np.float16),
    }
