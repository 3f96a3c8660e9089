"""What the tests of bad input share: the backends, a cache with every part of a state, refusals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvassay
from kvassay import Backend, Cache, KvassayError, Spec
from kvassay.protocol import FloatArray
from kvassay.registry import providers, usual

VARIANTS = [
    (name, variant)
    for name, variants in kvassay.backends().items()
    for variant, state in variants.items()
    if state.runs
]
USUAL = usual(providers())
#: The same for fixtures; backends that are judged on request have their turn in the long session.
PARAMETERS = [
    pytest.param(pair, id=".".join(pair), marks=[] if pair[0] in USUAL else [pytest.mark.long])
    for pair in VARIANTS
]
#: The variant of each backend that is the best here, where what a variant computes is not asked.
BEST = [
    pytest.param(pair, id=".".join(pair), marks=[] if pair[0] in USUAL else [pytest.mark.long])
    for pair in dict(reversed(VARIANTS)).items()
]
HELD = 45
#: Frozen means, sinks, a window, two layers that differ: every part of a state is there.
SPEC = Spec(
    layers=2,
    kv_heads=2,
    query_heads=4,
    head_dim=32,
    keys="turbo:3.5",
    values="turbo:3",
    page_tokens=16,
    window=5,
    sinks=2,
    key_centre="page",
    value_centre="frozen",
    layer_overrides={1: {"keys": "kivi:2", "values": "fp16"}},
)


def rows(count: int, heads: int, seed: int = 0) -> FloatArray:
    shape = (count, heads, SPEC.head_dim)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def filled(backend: Backend, spec: Spec, count: int = HELD) -> Cache:
    made = backend.prepare(spec)
    for layer in range(spec.layers):
        made.append(layer, rows(count, 2, 2 * layer), rows(count, 2, 2 * layer + 1))
    return made


def fingerprint(cache: Cache) -> tuple[Any, ...]:
    """Dump, lengths, bill of what is held, and answers."""
    working = ("scratch", "staging", "reserved")  # what a call passes through may grow
    billed = {part: size for part, size in cache.nbytes.items() if part not in working}
    layers = [layer for layer in range(SPEC.layers) if cache.lengths[layer]]
    answers = [cache.attend(layer, rows(1, 4, 9)).tobytes() for layer in layers]
    return hashlib.sha256(cache.dump()).hexdigest(), cache.lengths, billed, answers


def refuse(
    kind: type[KvassayError], says: str, call: Callable[..., object], *arguments: Any
) -> KvassayError:
    """The call raises exactly `kind`, and the message has all words of `says`, in that order."""
    with pytest.raises(kind) as caught:
        call(*arguments)
    assert caught.type is kind
    assert re.search(".*".join(map(re.escape, says.split(" "))), str(caught.value)), caught.value
    return caught.value
