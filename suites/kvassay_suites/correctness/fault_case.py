"""What the fault cases share: their specs, and how they complain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kvassay
from kvassay.errors import KvassayError
from kvassay.protocol import Backend, Cache, FloatArray

from ..common.inputs import gaussian
from ..common.offered import usual
from ..common.specs import make_spec


class Fault(Exception):
    """A case went wrong; the message says what was expected and what was found."""


def expect(good: bool | np.bool_, message: str) -> None:
    """Complain unless `good`."""
    if not good:
        raise Fault(message)


def expect_refusal(
    cache: Cache, kind: type[KvassayError], what: str, call: Callable[[], object]
) -> KvassayError:
    """The call must raise `kind` and leave the cache as it was."""
    before = cache.dump()
    try:
        call()
    except kind as error:
        expect(cache.dump() == before, f"{what}: refused, but the cache changed")
        expect(len(str(error)) > 10, f"{what}: the message {str(error)!r} says nothing")
        return error
    except Exception as error:
        raise Fault(
            f"{what}: {type(error).__name__} ({error}) instead of {kind.__name__}"
        ) from error
    raise Fault(f"{what}: accepted, expected {kind.__name__}")


def turbo(**fields: Any) -> kvassay.Spec:
    """A small spec, of turbo codecs where the backend has them."""
    keys, values = usual()
    plain = {"kv_heads": 2, "query_heads": 4, "head_dim": 64, "keys": keys, "values": values}
    return make_spec(**{**plain, "page_tokens": 16, **fields})


def plain(**fields: Any) -> kvassay.Spec:
    """A small fp16 spec: what goes in comes out."""
    return turbo(**{"keys": "fp16", "values": "fp16", **fields})


def kv(spec: kvassay.Spec, tokens: int, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    """Gaussian keys and values."""
    shape = (tokens, spec.kv_heads, spec.head_dim)
    return gaussian(seed, *shape), gaussian(seed + 1000, *shape)


def query(spec: kvassay.Spec, seed: int = 1) -> FloatArray:
    """A Gaussian query."""
    return gaussian(seed + 2000, spec.query_heads, spec.head_dim)


def filled(backend: Backend, spec: kvassay.Spec, tokens: int, seed: int = 1) -> Cache:
    """A cache with so many Gaussian tokens in every layer."""
    cache = backend.prepare(spec)
    for layer in range(spec.layers):
        cache.append(layer, *kv(spec, tokens, seed + layer))
    return cache


def same(a: FloatArray, b: FloatArray) -> bool:
    """Equal bits."""
    return a.shape == b.shape and a.tobytes() == b.tobytes()
