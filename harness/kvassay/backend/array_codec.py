"""A codec alone, arrays in and arrays out, as a backend: rows are encoded as they are appended.

kvassay gate --codec package.module:Codec --codec-options bits=4
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..errors import InputError, UnsupportedError
from ..protocol import Availability, Backend, BackendProvider, FloatArray
from ..spec import Spec
from .named_class import NamedClass
from .returned import Holder, ReturningBackend

SCHEME: Final = "array-codec"
#: Names of the two methods, the first pair that a class has.
_PAIRS: Final = (("encode", "decode"), ("quantize", "dequantize"), ("compress", "decompress"))
_DIMENSION: Final = ("head_dim", "dim", "d", "dimension", "n_dims")


class CodecProvider(BackendProvider):
    """One variant, always ready."""

    foreign = True
    on_request = True

    def __init__(self, cls: NamedClass) -> None:
        self.name = f"{SCHEME}:{cls}"
        self._class = cls

    def variants(self) -> Mapping[str, Availability]:
        return {CodecBackend.variant: Availability("ready")}

    def load(self, variant: str) -> Backend:
        return CodecBackend(self.name, self._class)


class CodecBackend(ReturningBackend):
    """A class with `encode` and `decode` (or `quantize`, `compress` and their inverses)."""

    def __init__(self, name: str, cls: NamedClass) -> None:
        super().__init__(name, cls.name, cls.claimed_bits)
        cls.load()
        self._class = cls

    def holder(self, shape: Spec) -> Holder:
        """What it encodes of one sequence; each layer has a codec for keys and one for values."""
        known = dict.fromkeys(_DIMENSION, shape.head_dim)
        pairs = [
            (_Stream(self._class.make(known, "--codec-options")),
             _Stream(self._class.make(known, "--codec-options")))
            for _ in range(shape.layers)
        ]  # fmt: skip
        return _Streams(pairs)


class _Streams:
    """Keys and values of each layer."""

    def __init__(self, pairs: list[tuple[_Stream, _Stream]]) -> None:
        self._pairs = pairs

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        keys, values = self._pairs[layer]
        return keys.update(k), values.update(v)

    def settle(self) -> None:
        for stream in (stream for pair in self._pairs for stream in pair):
            stream.settle()

    def drop_last(self, tokens: int) -> None:
        raise UnsupportedError("a codec alone has no tokens to drop")

    def reset(self) -> None:
        raise UnsupportedError("a codec alone has nothing to reset")


class _Stream:
    """What a codec made of the rows of one stream, and what they decode to."""

    def __init__(self, codec: Any) -> None:
        for forth, back in _PAIRS:
            if callable(getattr(codec, forth, None)) and callable(getattr(codec, back, None)):
                self._encode, self._decode = getattr(codec, forth), getattr(codec, back)
                break
        else:
            wanted = ", ".join("/".join(pair) for pair in _PAIRS)
            raise InputError(f"{type(codec).__name__} has no pair of methods {wanted}")
        self._held: list[tuple[Any, tuple[int, ...]]] = []
        #: Decoded rows of the first of them, so that a step need not decode everything again.
        self._decoded: list[FloatArray] = []

    def update(self, x: FloatArray) -> FloatArray:
        """Encode (tokens, heads, d) as rows (tokens * heads, d); give everything held, decoded."""
        self._held.append((self._encode(x.reshape(-1, x.shape[-1]).copy()), x.shape))
        self._decoded += [self._rows(*one) for one in self._held[len(self._decoded) :]]
        return np.concatenate(self._decoded)

    def settle(self) -> None:
        """Hold codes alone."""
        self._decoded.clear()

    def _rows(self, encoded: Any, shape: tuple[int, ...]) -> FloatArray:
        rows = np.asarray(self._decode(encoded), np.float32)
        if rows.size != np.prod(shape):
            raise InputError(f"decoded {rows.shape}, encoded {shape}: another number of values")
        return rows.reshape(shape)


def open_codec(path: str) -> CodecProvider:
    """The provider of `package.module:Codec?option=value`."""
    return CodecProvider(NamedClass.of_text(path))
