"""Copies of a cache are forks, and a pickle is refused, whatever the backend."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import kvassay
from kvassay.errors import StateError
from kvassay.protocol import Cache


@pytest.mark.parametrize("backend", ["reference", "native", "wasm"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_goes_its_own_way(backend: str, copied: Callable[[Cache], Cache]) -> None:
    spec = kvassay.preset("turbo", layers=1, kv_heads=1, query_heads=2, head_dim=64)
    k, v = np.random.default_rng(0).standard_normal((2, 300, 1, 64), dtype=np.float32)
    with kvassay.load(backend).prepare(spec) as cache:
        cache.append(0, k, v)
        before = cache.dump_bytes()
        with copied(cache) as other:
            assert other.dump_bytes() == before
            other.append(0, k[:70], v[:70])
            assert (other.length, cache.length) == (370, 300)
        assert cache.dump_bytes() == before  # also after the copy was closed
        with pytest.raises(StateError, match="dump_bytes"):
            pickle.dumps(cache)
