"""A tiny transformer whose weights come from a pinned generator.

It runs everywhere in milliseconds, needs no download, and has the same forward pass as a real
model. Its spread of weights is chosen so that attention is neither uniform nor one-hot and the
next-token distributions carry a few bits.
"""

from __future__ import annotations

import hashlib
import math
from typing import get_args

import numpy as np
import numpy.typing as npt

from kvassay.errors import InputError
from kvassay.model_names import TinyKind
from kvassay.models.attention import Floats
from kvassay.models.config import ModelConfig
from kvassay.models.llama import LayerWeights, Model, Weights
from kvassay.models.tokenizer import Tokens
from kvassay.suggest import did_you_mean

_HEADS: dict[str, tuple[int, int]] = {"gqa": (6, 2), "mha": (4, 4), "mqa": (4, 1)}
_SEEDS: dict[str, int] = {"gqa": 1, "mha": 2, "mqa": 3}
_LAYERS, _HEAD_DIM, _HIDDEN, _FFN, _VOCAB, _CONTEXT = 2, 64, 256, 512, 256, 4096

# Standard deviation of what each matrix makes of inputs with unit variance.
_QUERY_GAIN, _KEY_GAIN, _VALUE_GAIN, _GAIN, _LOGIT_GAIN = 1.25, 1.25, 2.0, 1.0, 2.0
# Half-width of the norm weights around 1: channels differ in size, as in real models.
_NORM_SPREAD = 0.5


def tiny(kind: TinyKind = "gqa") -> Model:
    """The tiny model: 2 layers, head dim 64, 256 tokens, no tokenizer.

    kind: "gqa" (6 query heads, 2 KV heads), "mha" (4, 4) or "mqa" (4, 1). The weights depend on
    the kind alone. Raises InputError for another kind.
    """
    if kind not in _HEADS:
        raise InputError(f"no tiny model {kind!r}{did_you_mean(kind, get_args(TinyKind))}")
    query_heads, kv_heads = _HEADS[kind]
    weights = _weights(_Generator(_SEEDS[kind]), query_heads * _HEAD_DIM, kv_heads * _HEAD_DIM)
    config = ModelConfig(
        name=f"tiny-{kind}",
        layers=_LAYERS,
        query_heads=query_heads,
        kv_heads=kv_heads,
        head_dim=_HEAD_DIM,
        hidden=_HIDDEN,
        ffn=_FFN,
        vocab=_VOCAB,
        context=_CONTEXT,
        rope_base=10000.0,
        eps=1e-5,
        model_hash=weights_hash(weights),
        tokenizer_hash=hashlib.sha256(b"").hexdigest(),
        template_hash=hashlib.sha256(b"").hexdigest(),
    )
    return Model(config, weights)


def tiny_tokens(n: int, seed: int = 0) -> Tokens:
    """``n`` pinned token ids for the tiny models, int64 (n,), uniform over the vocabulary."""
    return (splitmix64(seed, n) % np.uint64(_VOCAB)).astype(np.int64)


def splitmix64(seed: int, n: int) -> npt.NDArray[np.uint64]:
    """The first ``n`` outputs of SplitMix64 (Steele, Lea and Flood 2014) from state ``seed``."""
    with np.errstate(over="ignore"):
        z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def weights_hash(weights: Weights) -> str:
    """Hex sha256 of all weights as little-endian float32, in the order of the dataclasses."""
    digest = hashlib.sha256()
    layered = (
        array for layer in weights.layers for array in vars(layer).values() if array is not None
    )
    for array in (weights.embedding, *layered, weights.norm, weights.output):
        digest.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()


class _Generator:
    """Arrays from one stream of SplitMix64 per array."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._arrays = 0

    def uniform(self, shape: tuple[int, ...], half_width: float) -> Floats:
        """Uniform in [-half_width, half_width): 24 bits, so exact before one float32 product."""
        self._arrays += 1
        bits = splitmix64((self._seed << 48) + (self._arrays << 32), math.prod(shape))
        unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
        return (unit * np.float32(half_width)).reshape(shape)

    def matrix(self, outputs: int, inputs: int, gain: float) -> Floats:
        """Weights that turn inputs of unit variance into outputs of standard deviation gain."""
        return self.uniform((outputs, inputs), gain * math.sqrt(3.0 / inputs))

    def norm(self) -> Floats:
        """Norm weights around 1."""
        return np.float32(1.0) + self.uniform((_HIDDEN,), _NORM_SPREAD)


def _weights(source: _Generator, queries: int, kv: int) -> Weights:
    return Weights(
        embedding=source.uniform((_VOCAB, _HIDDEN), math.sqrt(3.0)),
        layers=tuple(_layer(source, queries, kv) for _ in range(_LAYERS)),
        norm=source.norm(),
        output=source.matrix(_VOCAB, _HIDDEN, _LOGIT_GAIN),
    )


def _layer(source: _Generator, queries: int, kv: int) -> LayerWeights:
    return LayerWeights(
        attention_norm=source.norm(),
        query=source.matrix(queries, _HIDDEN, _QUERY_GAIN),
        key=source.matrix(kv, _HIDDEN, _KEY_GAIN),
        value=source.matrix(kv, _HIDDEN, _VALUE_GAIN),
        attention_output=source.matrix(_HIDDEN, queries, _GAIN),
        ffn_norm=source.norm(),
        gate=source.matrix(_FFN, _HIDDEN, _GAIN),
        up=source.matrix(_FFN, _HIDDEN, _GAIN),
        down=source.matrix(_HIDDEN, _FFN, _GAIN),
    )
