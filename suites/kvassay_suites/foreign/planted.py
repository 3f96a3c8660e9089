"""Backends with formats of their own for the tests of this suite: sound ones and broken ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvassay.backend.own_formats import OwnFormat, OwnFormatBackend, turned
from kvassay.errors import UnsupportedError
from kvassay.protocol import FloatArray, Support
from kvassay.spec import Spec
from kvassay.vector_codec import codec

from ..oracle import attend64


class Blocks(OwnFormatBackend):
    """llama.cpp's q8_0 and q4_0, stored by their Python codecs; attention in float64."""

    name, variant, bound = "blocks", "python", 1e-6

    @property
    def formats(self) -> Mapping[str, OwnFormat]:
        return {
            "q8_0": OwnFormat("q8_0", "q8_0", 8.5, self.bound),
            "q4_0": OwnFormat("q4_0", "q4_0", 4.5, self.bound),
            "turned": OwnFormat("q4_0", "q4_0", 4.5, self.bound, hadamard=64),
        }

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> BlocksCache:
        return BlocksCache(name, shape)


class BlocksCache:
    """Decoded rows, as the codec gives them back."""

    #: What each stored vector is multiplied with; 1 is right.
    shrunk = 1.0
    #: Bytes held beside what the codec needs, a byte a value.
    extra = 0.0

    def __init__(self, name: str, shape: Spec) -> None:
        self.codec, self.shape = {"turned": "q4_0", "half": "fp16"}.get(name, name), shape
        self.block = 64 if name == "turned" else 0
        self.rows: list[list[tuple[FloatArray, FloatArray]]] = [[] for _ in range(shape.layers)]
        self.held = 0

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        encoded = [self.encode(k, "key"), self.encode(v, "value")]
        self.held += sum(one.nbytes for one in encoded)
        k, v = (turned(one.decode(), self.block) for one in encoded)
        self.rows[layer].append((k, v))

    def encode(self, x: FloatArray, role: str) -> Any:
        return codec(self.codec, head_dim=x.shape[-1], role=role).encode(turned(x, self.block))

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        k, v = (
            np.concatenate(part).astype(np.float64) for part in zip(*self.rows[layer], strict=True)
        )
        k, v = self.read(k, v)
        scale = self.shape.effective_softmax_scale
        return attend64(k * self.shrunk, v, q, scale, 0, 0, len(k)).astype(np.float32)

    def read(self, k: Any, v: Any) -> tuple[Any, Any]:
        """Decoded keys and values as the kernel sees them."""
        return k, v

    @property
    def stored_bytes(self) -> int:
        values = sum(k.size + v.size for rows in self.rows for k, v in rows)
        return self.held + int(self.extra * values)

    def close(self) -> None:
        self.rows = []


class _Broken(Blocks):
    cache: type[BlocksCache]

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> BlocksCache:
        return self.cache(name, shape)


class _Shrunk(BlocksCache):
    shrunk = 0.9


class ShrunkKeys(_Broken):
    """Reads keys a tenth too small."""

    cache = _Shrunk


class _Hoarding(BlocksCache):
    extra = 4.0


class KeepsFloats(_Broken):
    """Keeps every number as float32 beside its codes."""

    cache = _Hoarding


class _Chunky(BlocksCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, np.roll(v, 1, axis=0) if self.rows[layer] else v)


class MixesChunks(_Broken):
    """Shifts the values of every append but the first."""

    cache = _Chunky


class _Swapped(BlocksCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return super().attend(layer, q[::-1].copy())


class SwapsHeads(_Broken):
    """Answers for the heads in reverse."""

    cache = _Swapped


class _Coarse(BlocksCache):
    def encode(self, x: FloatArray, role: str) -> Any:
        return super().encode(np.float32(2) * np.round(x / np.float32(2)), role)


class CoarserThanItSays(_Broken):
    """Rounds before its codec does."""

    cache = _Coarse


def _beside(scales: Any, own: Any) -> Any:
    """What codes of `own` are multiplied with where they are read with the scale of `scales`, the
    group beside."""
    return np.abs(scales).max(-1, keepdims=True) / np.abs(own).max(-1, keepdims=True)


class _OffTokens(BlocksCache):
    def read(self, k: Any, v: Any) -> tuple[Any, Any]:
        tail = len(v) % 32
        if len(v) > 32 and tail > 1:
            v = v.copy()
            by_channel = np.moveaxis(v, 0, -1)
            by_channel[..., -tail:] *= _beside(
                by_channel[..., -tail - 32 : -tail], by_channel[..., -tail:]
            )
        return k, v


class OffInTailOfTokens(_Broken):
    """The scale of the group before, in a group of tokens that is not full; right in tails of
    one."""

    cache = _OffTokens


class _OffKeys(BlocksCache):
    def read(self, k: Any, v: Any) -> tuple[Any, Any]:
        if tail := k.shape[-1] % 32:
            k = k.copy()
            k[..., -tail:] *= _beside(k[..., -tail - 32 : -tail], k[..., -tail:])
        return k, v


class _OffValues(_OffKeys):
    def read(self, k: Any, v: Any) -> tuple[Any, Any]:
        return k, super().read(v, k)[0]


class AnyHeadDim(_Broken):
    """fp16: a codec of every head dim, in a kernel that may be off by 5 %."""

    bound = 0.05
    cache = BlocksCache

    @property
    def formats(self) -> Mapping[str, OwnFormat]:
        return {"half": OwnFormat("fp16", "fp16", 16, self.bound)}


class KeysOffInTailOfChannels(AnyHeadDim):
    """Keys read with the scale of the group before, in a group of channels that is not full."""

    cache = _OffKeys


class ValuesOffInTailOfChannels(AnyHeadDim):
    """Values read so."""

    cache = _OffValues


class RefusesRaggedHeadDims(AnyHeadDim):
    """Refuses what it said that it has."""

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> BlocksCache:
        if shape.head_dim % 32:
            raise UnsupportedError("not now")
        return super().prepare_own(name, shape, threads)


class SaysWhichHeadDims(RefusesRaggedHeadDims):
    """Says so before, and why."""

    said = "whole groups only"

    def supports_own(self, name: str, shape: Spec) -> Support:
        return Support(shape.head_dim % 32 == 0, self.said)


class SaysNotWhy(SaysWhichHeadDims):
    """Says so without a reason."""

    said = ""


class _Choosy(BlocksCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        if len(k) == 50:
            raise UnsupportedError("of 50 tokens")
        super().append(layer, k, v)


class RefusesLengths(AnyHeadDim):
    """Takes no append of fifty tokens."""

    cache = _Choosy


class HasNone(RefusesRaggedHeadDims):
    """Has no shape at all."""

    def supports_own(self, name: str, shape: Spec) -> Support:
        return Support(False, "on Sundays")
