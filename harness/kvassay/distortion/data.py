"""Keys and queries to compare codecs on, the same for all, named by a digest.

Codecs that learn do so on `learn`, other vectors of the same kind. The random stream of the data
is not that of any transform, whatever the seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import InputError
from ..models import Model, Tokens, capture, topics_tokens
from ..protocol import FloatArray
from ..suggest import did_you_mean

KINDS: Final = ("gaussian", "outliers", "biased")
#: First tokens that every arm reads exactly, as a cache with sinks does.
SINKS: Final = 4
_STREAM: Final = 0x44415441  # "DATA"
_QUERIES: Final = 32
#: Character of the help topics where codecs learn.
_ELSEWHERE: Final = 60_000


@dataclass(frozen=True)
class DataSet:
    """k, v and learn (tokens, heads, d), q (n, heads, d), float32; every query sees all of k.

    The first `SINKS` tokens of all but q are not for a codec. `values_learn` is to v what `learn`
    is to k. digest: of k, v and q, 12 hex digits. rope_base: of the RoPE, interleaved and
    unscaled, that all keys went through; None where there is none such.
    """

    name: str
    k: FloatArray
    v: FloatArray
    q: FloatArray
    learn: FloatArray
    values_learn: FloatArray
    rope_base: float | None = None

    @property
    def head_dim(self) -> int:
        """d."""
        return int(self.k.shape[-1])

    @property
    def digest(self) -> str:
        """Equal digests, equal inputs."""
        hasher = hashlib.sha256()
        for array in (self.k, self.v, self.q):
            hasher.update(np.ascontiguousarray(array).tobytes())
        return hasher.hexdigest()[:12]


def synthetic(
    kind: str, head_dim: int = 128, tokens: int = 516, heads: int = 2, seed: int = 0
) -> DataSet:
    """One of KINDS.

    gaussian: independent N(0, 1). outliers: four channels of keys are ten times as large. biased:
    keys have a mean of three standard deviations a channel, which they share, as keys after a layer
    with a bias do. Raises InputError for another kind and for too few tokens to measure.
    """
    if kind not in KINDS:
        raise InputError(f"data: no kind {kind!r}{did_you_mean(kind, KINDS)}")
    if tokens < 132:
        raise InputError(f"data: {tokens} tokens; at least 132 are needed to fill a page")
    random = np.random.Generator(
        np.random.PCG64(np.random.SeedSequence((_STREAM, KINDS.index(kind), head_dim, seed)))
    )

    def draw(n: int) -> FloatArray:
        return random.standard_normal((n, heads, head_dim), dtype=np.float32)

    scale = np.ones((1, heads, head_dim), np.float32)
    shift = np.zeros((1, heads, head_dim), np.float32)
    if kind == "outliers":
        for head in range(heads):
            scale[0, head, random.choice(head_dim, 4, replace=False)] = 10
    if kind == "biased":
        shift = np.float32(3) * draw(1)
    return DataSet(
        name=kind,
        k=draw(tokens) * scale + shift,
        v=draw(tokens),
        q=np.float32(3) * draw(_QUERIES),  # logits of about three standard deviations
        learn=draw(tokens) * scale + shift,
        values_learn=draw(tokens),
    )


def captured(
    model: Model, name: str, tokens: int = 516, texts: tuple[Tokens, Tokens] | None = None
) -> DataSet:
    """Queries, keys and values of three layers of a model, their heads side by side.

    Keys after RoPE. The queries are those of the tokens that follow the keys. `texts`: the tokens
    to run and those to learn from; by default two parts of CPython's help topics. Raises
    InputError where they are too short.
    """
    length = tokens + _QUERIES
    run, learn = texts or (topics_tokens(model, length), topics_tokens(model, length, _ELSEWHERE))
    if tokens < 132 or min(len(run), len(learn)) < length:
        raise InputError(f"data: {tokens} tokens; give 132 or more, and texts of {length}")
    first, second = capture(model, run[:length]), capture(model, learn[:length])
    layers = sorted({0, model.config.layers // 2, model.config.layers - 1})
    group = model.config.query_heads // model.config.kv_heads
    return DataSet(
        name=name,
        k=_beside([first.k[layer][:tokens] for layer in layers]),
        v=_beside([first.v[layer][:tokens] for layer in layers]),
        q=_beside([_by_kv_head(first.q[layer][tokens:], group) for layer in layers]),
        learn=_beside([second.k[layer][:tokens] for layer in layers]),
        values_learn=_beside([second.v[layer][:tokens] for layer in layers]),
        rope_base=_plain_rope_base(model),
    )


def _plain_rope_base(model: Model) -> float | None:
    """The base, where that alone says how keys were turned."""
    config = model.config
    plain = (
        config.family.rope_order == "interleaved"
        and config.span is None
        and config.rope_divisor == 1
        and model.weights.rope_factors is None
    )
    return config.rope_base if plain else None


def _beside(layers: list[FloatArray]) -> FloatArray:
    return np.concatenate(layers, axis=1)


def _by_kv_head(q: FloatArray, group: int) -> FloatArray:
    """(n, query_heads, d) as (n * group, kv_heads, d)."""
    n, heads, d = q.shape
    split = q.reshape(n, heads // group, group, d).swapaxes(1, 2)
    return np.ascontiguousarray(split).reshape(n * group, heads // group, d)
