"""What is particular to the scorer in linear memory: copies, memory, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from vectors import filled, gaussian

from kvassay.errors import CacheMemoryError, UnavailableError
from kvassay.retrieval import Index, load_scorer
from kvassay_backends.wasm import backend
from kvassay_backends.wasm.backend import WasmBackend
from kvassay_backends.wasm.instance import Instance, Limits
from kvassay_backends.wasm.retrieval import WasmScorer


def instance(limits: Limits | None = None) -> Instance:
    loaded = backend.load("simd128")
    assert isinstance(loaded, WasmBackend)
    return Instance(loaded._module, limits)


def index_on(scorer: WasmScorer, n: int, dim: int) -> Index:
    index = Index(dim, 4, backend="reference")
    index.scorer = scorer
    index.add(gaussian(1, n, dim))
    return index


def test_what_was_copied_is_copied_again_once_it_changed() -> None:
    scorer = WasmScorer(instance(), "simd128")
    index, other = index_on(scorer, 40, 24), index_on(scorer, 90, 24)
    expected = filled()
    q = gaussian(2, 3, 24)
    for change in (
        lambda i: i.remove([7, 30]),
        lambda i: i.add(gaussian(3, 50, 24)),
        lambda i: i.remove(np.arange(50, 80)),
        lambda i: None,
    ):
        assert (index.search(q, 9)[1] == expected.search(q, 9)[1]).all()
        other.search(q, 3)  # another index, another plan: the same memory
        change(index)
        change(expected)


def test_memory_does_not_grow_from_search_to_search() -> None:
    scorer = WasmScorer(instance(), "simd128")
    index = index_on(scorer, 3000, 64)
    q = gaussian(2, 2500, 64)  # more than one batch
    index.search(q, 10)
    used = scorer._instance.use
    for _ in range(3):
        index.search(q, 10)
        index.search(q[:1], 3000)
        index.search(q[:7], 5, mask=np.arange(3000) % 2 == 0)
    now = scorer._instance.use
    assert (now.used, now.pages) == (used.used, used.pages)


def test_an_index_larger_than_linear_memory_is_refused_and_stays_whole() -> None:
    scorer = WasmScorer(instance(Limits(memory=4 << 20)), "simd128")
    index = index_on(scorer, 1000, 128)
    q = gaussian(2, 1, 128)
    before = index.search(q, 5)
    index.add(gaussian(3, 64_000, 128))
    with pytest.raises(CacheMemoryError, match="cap of 4194304 bytes"):
        index.search(q, 5)
    index.remove(np.arange(1000, 65_000))
    scores, ids = index.search(q, 5)
    assert np.array_equal(scores, before[0])
    assert np.array_equal(ids, before[1])


def test_a_module_without_stored_vectors_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = instance()
    del lacking._functions["kv_retrieval_search"]
    with pytest.raises(UnavailableError, match="does not export kv_retrieval_search"):
        WasmScorer(lacking, "simd128")
    right = Instance.call

    def newer(self: Instance, name: str, *arguments: int) -> int:
        return 2 if name == "kv_retrieval_version" else right(self, name, *arguments)

    monkeypatch.setattr(Instance, "call", newer)
    with pytest.raises(UnavailableError, match="retrieval version 2, this kvassay needs 1"):
        load_scorer("wasm", "scalar")
