"""E8 lattice codes of 8 channels, the best packing in 8 dimensions (Viazovska 2016).

After a rotation, as in NestQuant (Savkin and others, arXiv 2502.09720). At 2 bits the code is the
index of one of the 56881 lattice points of squared norm up to 10, a ball, in 16 bits. At 3 and 4
bits it is the coset of a point in E8 / 2^b E8, decoded to its representative in the Voronoi cell of
2^b E8 (Conway and Sloane 1983). A block whose nearest point has no code is drawn towards the origin
until its nearest point has one. Nearest points by Conway and Sloane 1982.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .base import F32, F64, U8, Codec, Held, Shape, f16, f32
from .eden import SCALES, scale_factor
from .packing import pack, unpack
from .rotated import unit
from .rotations import KINDS, rotation

DIM: Final = 8
RADIUS: Final = 10
#: Length of a lattice step in standard deviations of a channel, of least error on N(0, 1), by bits.
STEPS: Final = {2: 0.98, 3: 0.58, 4: 0.315}
_SHRINK: Final = 0.96

#: Rows span E8.
_BASIS: Final[F64] = np.vstack(
    [
        2 * np.eye(1, DIM),
        np.eye(DIM)[1:7] - np.eye(DIM)[0:6],
        np.full((1, DIM), 0.5),
    ]
)


class E8(Codec):
    """Codes and one fp16 number a vector.

    scale: "unbiased" (default for keys), "biased" of least squared error (for values), "matched".
    rotation: as `rotations.KINDS` lists them.
    """

    paper = "arXiv 2502.09720; Conway and Sloane 1982, 1983"
    granularity = "8 channels, scale a vector"
    claim = "4 bits everywhere: gap to full perplexity 55 % smaller than SpinQuant's"
    rates = (2.0, 3.0, 4.0)

    def __init__(
        self, *, scale: str | None = None, rotation: str = "two-rounds", **common: Any
    ) -> None:
        super().__init__(**common)
        default = "unbiased" if self.role == "key" else "biased"
        self.scale = self._choice("scale", scale or default, SCALES)
        self.rotation = self._choice("rotation", rotation, KINDS)

    def _matrix(self) -> F32:
        return rotation(self.rotation, self.head_dim, self.seed)

    def _pack(self, x: F32) -> Held:
        norm = np.linalg.norm(x, axis=-1, keepdims=True)
        y = unit(x, norm) @ self._matrix().T
        blocks = y.reshape(-1, DIM).astype(np.float64) / STEPS[int(self.bits)]
        codes: NDArray[Any]
        if self.bits == 2:
            codes = nearest_in_ball(blocks).reshape(*y.shape[:2], -1)
        else:
            codes = pack(nearest_in_cell(blocks, int(self.bits)).reshape(y.shape), int(self.bits))
        factor = scale_factor(self.scale, y, self._points(codes, y.shape))
        scales = factor * norm[..., 0] / np.sqrt(self.head_dim)
        return {"codes": codes, "scales": f16("a vector's scale", scales)}

    def _points(self, codes: NDArray[Any], shape: tuple[int, ...]) -> F32:
        """Codewords of unit variance, (heads, tokens, d)."""
        if self.bits == 2:
            points = ball()[codes]
        else:
            unpacked = unpack(codes, int(self.bits), self.head_dim)
            points = representative(unpacked.reshape(-1, DIM), int(self.bits))
        return np.asarray(points.reshape(shape) * STEPS[int(self.bits)], np.float32)

    def _unpack(self, held: Held, shape: Shape) -> F32:
        points = self._points(held["codes"], shape)
        scaled: F32 = np.multiply(points, f32(held["scales"])[..., np.newaxis], dtype=np.float32)
        x: F32 = scaled @ self._matrix()
        return x


def nearest(y: F64) -> F64:
    """The nearest point of E8 of each row (n, 8): of D8 and of D8 + 1/2 (1982, section 6)."""
    whole, half = _nearest_d8(y), _nearest_d8(y - 0.5) + 0.5
    closer = np.square(y - half).sum(1) < np.square(y - whole).sum(1)
    return np.where(closer[:, np.newaxis], half, whole)


def _nearest_d8(y: F64) -> F64:
    """Integers of even sum: where rounding gives an odd one, the worst coordinate goes the other
    way."""
    rounded = np.rint(y)
    error = y - rounded
    odd = rounded.sum(axis=1) % 2 != 0
    worst = np.abs(error).argmax(axis=1)[odd]
    rounded[odd, worst] += np.where(error[odd, worst] >= 0, 1, -1)
    return rounded


def coset(points: F64, bits: int) -> U8:
    """Coordinates of lattice points in the basis, modulo 2^bits."""
    coordinates = np.rint(points @ np.linalg.inv(_BASIS)).astype(np.int64)
    return (coordinates % (1 << bits)).astype(np.uint8)


def representative(codes: U8, bits: int) -> F64:
    """The point of the coset in the Voronoi cell of 2^bits E8."""
    points = codes.astype(np.float64) @ _BASIS
    # A point on the border of the cell has several representatives; an irrational nudge picks one.
    nudge = np.sqrt(np.arange(2, 2 + DIM)) * 1e-6
    return np.asarray(points - (1 << bits) * nearest((points - nudge) / (1 << bits)), np.float64)


def nearest_in_cell(y: F64, bits: int) -> U8:
    """Coset codes of the nearest points of rows (n, 8) that their codes give back."""
    codes = np.zeros(y.shape, np.uint8)
    left, scale = np.arange(len(y)), 1.0
    while len(left):
        points = nearest(y[left] * scale)
        found = coset(points, bits)
        good = (np.abs(representative(found, bits) - points) < 1e-6).all(axis=1)
        codes[left[good]] = found[good]
        left, scale = left[~good], scale * _SHRINK
    return codes


@lru_cache(maxsize=1)
def ball() -> F64:
    """The lattice points of squared norm up to 10, ordered by their keys, (56881, 8)."""
    points = np.concatenate([_shifted(np.arange(-3, 4)), _shifted(np.arange(-2.5, 3))])
    return points[np.argsort(_keys(points))]


def _shifted(coordinates: NDArray[Any]) -> F64:
    """Points of even sum and squared norm up to 10 with these coordinates."""
    points: F64 = np.zeros((1, 0))
    for _ in range(DIM):
        more = np.repeat(points, len(coordinates), axis=0)
        last = np.tile(coordinates, len(points))[:, np.newaxis]
        points = np.concatenate([more, last], axis=1)
        points = points[np.square(points).sum(axis=1) <= RADIUS]
    return np.asarray(points[points.sum(axis=1) % 2 == 0], np.float64)


def _keys(points: F64) -> NDArray[np.int64]:
    digits = np.rint(2 * points).astype(np.int64) + 8
    return digits @ (16 ** np.arange(DIM, dtype=np.int64))


@lru_cache(maxsize=1)
def _ball_keys() -> NDArray[np.int64]:
    return _keys(ball())


@lru_cache(maxsize=1)
def _roots() -> F64:
    """The 240 shortest vectors."""
    short = np.isclose(np.square(ball()).sum(axis=1), 2)
    return np.asarray(ball()[short], np.float64)


def nearest_in_ball(y: F64) -> NDArray[np.uint16]:
    """Indices into `ball()` of near points of rows (n, 8): the nearest where that is in the ball.

    Elsewhere from a point inside towards y, by shortest vectors, until none of them gets closer.
    """
    points = nearest(y)
    far = np.flatnonzero(np.square(points).sum(axis=1) > RADIUS)
    if len(far):
        points[far] = _climb(y[far])
    return np.searchsorted(_ball_keys(), _keys(points)).astype(np.uint16)


def _climb(y: F64) -> F64:
    # Short enough that the nearest point is inside: E8 covers with radius 1.
    points = nearest(2 * y / np.linalg.norm(y, axis=1, keepdims=True))
    roots = _roots()
    while True:
        energy = np.square(points).sum(axis=1, keepdims=True)
        gain = 2 * (y - points) @ roots.T - 2
        gain[energy + 2 * points @ roots.T + 2 > RADIUS + 0.5] = -np.inf
        best = gain.argmax(axis=1)
        closer = gain[np.arange(len(y)), best] > 1e-9
        if not closer.any():
            return points
        points[closer] += roots[best[closer]]
