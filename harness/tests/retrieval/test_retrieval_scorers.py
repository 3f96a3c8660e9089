"""Every scorer that runs here gives the bits of the reference."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vectors import F32, gaussian, state

from kvassay.errors import UnavailableError
from kvassay.retrieval import Index, load_scorer, scorers

RUNNING = [
    (name, variant)
    for name, variants in scorers().items()
    for variant, availability in variants.items()
    if availability.runs and name != "reference"
]


def test_there_is_something_to_compare() -> None:
    assert {"native", "reference"} <= set(scorers())
    assert ("native", "scalar") in RUNNING


def awkward(seed: int, n: int, dim: int) -> F32:
    """Lengths over twenty-four octaves, outlier channels, one-hot rows, zeros and repeats."""
    x = gaussian(seed, n, dim)
    x[:, :: max(1, dim // 3)] *= 30
    x *= np.exp2(np.arange(n) % 25 - 12, dtype=np.float32)[:, np.newaxis]
    x[5::11] = 0
    x[6::11] = x[0]
    x[7::22, 1:] = 0
    return x


CASES = [
    (dim, bits, kind, metric)
    for (dim, bits), (kind, metric) in zip(
        product((1, 128, 200, 513, 1536), (2, 3, 4)),
        [(None, "ip"), ("outer", "ip"), (None, "cosine"), ("5-95", "cosine"), ("mean", "ip")] * 3,
        strict=True,
    )
]


def make(case: tuple[Any, ...], backend: str, variant: str | None = None) -> Index:
    dim, bits, kind, metric = case
    index = Index(dim, bits, backend=backend, variant=variant, metric=metric, seed=dim)
    if kind and dim > 16:
        index.calibrate(gaussian(3, 3000, dim) + 1, kind)
    index.add(awkward(1, 150, dim))
    return index


def answers(index: Index) -> list[bytes]:
    q = awkward(2, 40, index.code.dim)
    mask = np.arange(len(index)) % 3 > 0
    found = [
        index.search(q, 10),
        index.search(q[:1], 150),
        index.search(q[:5], 10_000),
        index.search(q[:17], 7, mask=mask),
    ]
    return [part.tobytes() for pair in found for part in pair]


@cache
def expected(case: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[bytes]]:
    index = make(case, "reference")
    return state(index), answers(index)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", RUNNING, ids="-".join)
def test_bits(target: tuple[str, str], case: tuple[Any, ...]) -> None:
    index = make(case, *target)
    assert index.scorer.variant == target[1]
    assert state(index) == expected(case)[0]
    assert answers(index) == expected(case)[1]


@pytest.mark.parametrize("target", RUNNING, ids="-".join)
@pytest.mark.parametrize("queries", [1, 33])
def test_bits_over_many_chunks(target: tuple[str, str], queries: int) -> None:
    x, q = gaussian(1, 5_011, 32), gaussian(2, queries, 32)
    x[::7] = x[0]  # ties across the bounds of chunks
    found = []
    for backend, variant in (("reference", None), target):
        index = Index(32, 4, backend=backend, variant=variant)
        index.add(x)
        found.append([part.tobytes() for part in index.search(q, 700)])
    assert found[0] == found[1]


@pytest.mark.parametrize("target", RUNNING, ids="-".join)
def test_one_reads_what_another_wrote(target: tuple[str, str], tmp_path: Path) -> None:
    path, case = tmp_path / "a.kvri", (530, 3, "outer", "cosine")
    make(case, "reference").save(path)
    index = Index.load(path, target[0], variant=target[1])
    assert answers(index) == expected(case)[1]
    index.add(gaussian(9, 200, 530))  # slabs with spare room lie apart
    index.search(gaussian(8, 3, 530), 5)
    index.save(path)
    other = Index.load(path, "reference")
    assert answers(other) == answers(index)


@pytest.mark.parametrize("target", RUNNING, ids="-".join)
def test_threads_search_at_once(target: tuple[str, str]) -> None:
    index = make((128, 4, None, "ip"), *target)
    other = make((200, 3, None, "ip"), *target)
    other.scorer = index.scorer
    asked = [(i, awkward(n, n, i.code.dim)) for i in (index, other) for n in (1, 7)] * 10
    alone = [i.search(q, 9) for i, q in asked]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: one[0].search(one[1], 9), asked))
    for (scores, ids), (expected_scores, expected_ids) in zip(found, alone, strict=True):
        assert scores.tobytes() == expected_scores.tobytes()
        assert ids.tobytes() == expected_ids.tobytes()


def test_a_variant_that_cannot_run_is_never_replaced() -> None:
    for name, variants in scorers().items():
        for variant, availability in variants.items():
            if not availability.runs:
                with pytest.raises(UnavailableError, match=variant):
                    load_scorer(name, variant)
