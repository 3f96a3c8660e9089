"""One layer of queries, keys and values with the structure of real ones, from a pinned generator.

What makes real caches hard to quantize is put in on purpose: a few channels much larger than the
rest, a bias that the keys of a head share, keys that drift slowly along the tokens, and a first
token whose small key draws much of the attention, since the queries lean away from the bias of all
others. Norms, the share of the first token and the number of tokens that share the attention (a
handful, up to hundreds) are those of the middle layers of SmolLM2-135M.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from kvassay.models.tiny import splitmix64
from kvassay.protocol import FloatArray

from .fidelity import LayerTensors

HEAD_DIM: Final = 64
#: Name: query heads, KV heads.
SHAPES: Final = {"mha": (4, 4), "gqa": (6, 2), "mqa": (4, 1)}

_OUTLIERS: Final = 3  # channels a head
_OUTLIER: Final = (8.0, 1.0)  # their mean and standard deviation
_BIAS: Final = 7.0  # norm of the bias of keys
_LEAN: Final = 10.0  # norm of the queries' share along the bias, away from it
_DRIFT: Final = 0.98  # correlation of the slow part of keys from one token to the next
_RECALL: Final = 0.5  # share of the key of one earlier token in a query
_SINK: Final = 0.3  # size of the first key and value

Integers = np.ndarray[Any, np.dtype[np.int64]]


@cache
def one_layer(shape: str, tokens: int) -> LayerTensors:
    """The fixture: q (tokens, query_heads, 64), k and v (tokens, kv_heads, 64), float32."""
    query_heads, kv_heads = SHAPES[shape]
    source = _Normal(seed=100 + list(SHAPES).index(shape))
    bias = _unit(source.draw(kv_heads, HEAD_DIM))
    moving = source.draw(tokens, kv_heads, HEAD_DIM) + _slow(source, tokens, kv_heads)
    k = moving + np.float32(_BIAS) * bias
    k[0] = np.float32(_SINK) * moving[0]
    _add_outliers(source, k)
    q = source.draw(tokens, query_heads, HEAD_DIM)
    earlier = source.below(np.arange(1, tokens + 1))
    for head in range(query_heads):
        shared = head * kv_heads // query_heads
        q[:, head] += np.float32(_RECALL) * moving[earlier, shared]
        q[:, head] -= np.float32(_LEAN) * bias[shared]
    v = np.float32(0.8) * source.draw(tokens, kv_heads, HEAD_DIM)
    v[0] *= np.float32(_SINK)
    for array in (q, k, v):
        array.flags.writeable = False
    return LayerTensors(q, k, v)


def _slow(source: _Normal, tokens: int, heads: int) -> FloatArray:
    """A first-order autoregressive series of unit variance along the tokens."""
    steps = source.draw(tokens, heads, HEAD_DIM)
    kept, fresh = np.float32(_DRIFT), np.float32((1 - _DRIFT**2) ** 0.5)
    for t in range(1, tokens):
        steps[t] = kept * steps[t - 1] + fresh * steps[t]
    return steps


def _add_outliers(source: _Normal, k: FloatArray) -> None:
    size, spread = np.float32(_OUTLIER[0]), np.float32(_OUTLIER[1])
    for head in range(k.shape[1]):
        channels = (7 + 5 * head + 19 * np.arange(_OUTLIERS)) % HEAD_DIM
        k[:, head, channels] += size + spread * source.draw(len(k), _OUTLIERS)


def _unit(x: FloatArray) -> FloatArray:
    """Rows of norm 1: division and square root are exact to the last bit everywhere."""
    square: FloatArray = np.zeros_like(x[..., 0])
    for channel in range(x.shape[-1]):
        square += x[..., channel] * x[..., channel]
    root: FloatArray = np.sqrt(square)[..., np.newaxis]
    return x / root


class _Normal:
    """Nearly normal numbers from SplitMix64 without a transcendental function: equal everywhere.

    Twelve uniform numbers of 16 bits added up (Irwin and Hall): variance 1, range -6 to 6.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def draw(self, *shape: int) -> FloatArray:
        """float32 of that shape."""
        bits = self._bits(3 * int(np.prod(shape))).astype("<u8")
        parts = bits.view("<u2").astype(np.int64).reshape(-1, 12)
        centred = parts.sum(axis=1) - 6 * 65535
        normal: FloatArray = (centred.astype(np.float32) * np.float32(2.0**-16)).reshape(shape)
        return normal

    def below(self, bounds: Integers) -> Integers:
        """One integer from 0 to bound - 1 for each bound, int64."""
        bits = self._bits(len(bounds)) >> np.uint64(32)
        chosen: Integers = (bits % bounds.astype(np.uint64)).astype(np.int64)
        return chosen

    def _bits(self, n: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        self._drawn += 1
        return splitmix64((self._seed << 48) + (self._drawn << 32), n)
