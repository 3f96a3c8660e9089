"""Recall, bits, bytes, latency and memory of one target."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.records import Record
from kvassay.registry import REFERENCE
from kvassay.retrieval import BITS, Index

from ..common.process import call_fresh
from ..common.specs import MATH, instruction_stage, record
from .data import F32, REAL, Data, K, load_data
from .data import recall as share_found

#: Re-ranks that are tried, in this order: the first that passes is the price.
LADDER: Final = (10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500)
#: The rule's bound, which the smallest re-rank is looked for by.
WANTED: Final = 0.98
#: Dimensions of the byte table (TurboVec publishes d b / 8 + 8).
TABLE: Final = (64, 128, 200, 256, 768, 1536)
#: Dimension and calibration of what is compared bit by bit.
_SHAPES: Final = ((1, None), (80, "mean"), (80, "outer"), (200, "5-95"), (600, None))
_BLOCK: Final = 4096
_LATENCIES: Final = 200


def list_scorers(targets: Sequence[tuple[str, str, bool]]) -> list[Record]:
    """Which targets have a scorer."""
    return [
        record("retrieval.scorer", MATH, backend, variant, has, "has one", 1)
        for backend, variant, has in targets
    ]


def recall(
    backend: str,
    variant: str,
    data: str,
    n: int,
    dim: int,
    model: str,
    modes: Sequence[str],
) -> list[Record]:
    """Recall@10 of each mode: codes alone, the smallest re-rank that passes, SQ8."""
    given = load_data(data, n, dim, model)
    found = [record for bits in BITS for record in recall_of(backend, variant, given, bits, modes)]
    return [*found, *(recall_sq8(backend, variant, given) if "stored-sq8" in modes else ())]


def recall_of(
    backend: str, variant: str, given: Data, bits: int, modes: Sequence[str]
) -> list[Record]:
    """The same of one number of bits and a data set at hand."""
    if not any(mode.startswith(f"stored-{bits}") for mode in modes):
        return []
    n, dim = given.x.shape
    index = Index(dim, bits, keep_vectors=True, backend=backend, variant=variant)
    index.calibrate(given.x, "mean")
    index.add(given.x)
    codes = share_found(index.search(given.q, K)[1], given.best)
    rerank, ranked = smallest_rerank(index, given)
    plain, kept = index.code.code_bytes + 4, index.code.code_bytes + 4 + 4 * dim
    price: dict[str, Any] = {
        "smallest_rerank": rerank if ranked >= WANTED else None,
        "rerank_recall": ranked,
        "rerank_bytes_a_vector": kept,
        "sq8_recall": share_found(search_sq8(given.x, given.q), given.best),
        "sq8_bytes_a_vector": dim,
    }
    where = f"{given.name} {n} x {dim}"
    found = {
        f"stored-{bits}": (
            *(codes, f"{where}, {plain} bytes a vector; {_would_pass(price)}"),
            {"bytes_a_vector": plain, "passes": price},
        ),
        f"stored-{bits}-rerank": (
            *(ranked, f"{where}, re-rank of {rerank}, {kept} bytes a vector"),
            {"rerank": rerank, "bytes_a_vector": kept, "codes_alone": codes},
        ),
    }
    return [
        _record("recall", backend, variant, value, "of the baseline", given.best.size, given.name)(
            mode, subject, detail
        )
        for mode, (value, subject, detail) in found.items()
        if mode in modes
    ]


def _would_pass(price: dict[str, Any]) -> str:
    """What reaches the bound here, and its bytes."""
    offers = []
    if price["smallest_rerank"]:
        rerank, kept = price["smallest_rerank"], price["rerank_bytes_a_vector"]
        offers.append(f"a re-rank of {rerank} at {kept} bytes")
    if price["sq8_recall"] >= WANTED:
        offers.append(f"SQ8 at {price['sq8_bytes_a_vector']}")
    return f"what passes: {', '.join(offers) or 'neither a re-rank nor SQ8'}"


def smallest_rerank(index: Index, given: Data) -> tuple[int, float]:
    """The first of LADDER whose recall passes, else the last, and its recall."""
    reached = 0.0
    for rerank in LADDER:
        reached = share_found(index.search(given.q, K, rerank=rerank)[1], given.best)
        if reached >= WANTED:
            break
    return rerank, reached


def recall_sq8(backend: str, variant: str, given: Data) -> list[Record]:
    """Recall@10 of the fallback, which no backend has a part in."""
    n, dim = given.x.shape
    share = share_found(search_sq8(given.x, given.q), given.best)
    make = _record(
        "recall", backend, variant, share, "of the baseline", given.best.size, given.name
    )
    return [make("stored-sq8", f"{given.name} {n} x {dim}", {"bytes_a_vector": dim})]


def search_sq8(x: F32, q: F32) -> NDArray[np.int64]:
    """The ten best by a byte a component: 256 levels between the least and the largest value of
    each component, queries in float32."""
    low, high = x.min(axis=0), x.max(axis=0)
    step = np.where(high > low, (high - low) / 255, np.float32(1)).astype(np.float32)
    scores = np.empty((len(q), len(x)), np.float32)
    for start in range(0, len(x), _BLOCK):
        part = x[start : start + _BLOCK]
        codes = np.rint((part - low) / step).astype(np.uint8)
        scores[:, start : start + _BLOCK] = (q * step) @ codes.T.astype(np.float32)
    best: NDArray[np.int64] = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return best


def bytes_held(backend: str, variant: str) -> list[Record]:
    """Bytes a vector that an index really holds, beside the published formula."""
    rows: dict[str, Any] = {}
    most = 0.0
    for dim in TABLE:
        for bits in BITS:
            index = Index(dim, bits, backend=backend, variant=variant)
            index.add(np.ones((64, dim), np.float32))
            held, published = sum(index.nbytes.values()) / 64, dim * bits / 8 + 8
            rows[f"{dim} x {bits} bits"] = {"held": held, "published": published}
            most = max(most, held / published)
    make = _record("bytes", backend, variant, most, "of the published formula", len(rows), "")
    return [make("", "bytes a vector", rows)]


def bits(backend: str, variant: str) -> list[Record]:
    """Codes, scales, scores and rows against the reference scorer, to the last bit."""
    differing, compared, first = 0, 0, ""
    for (dim, kind), width in product(_SHAPES, BITS):
        pair = [_answers(REFERENCE, None, dim, width, kind)]
        pair.append(_answers(backend, variant, dim, width, kind))
        for expected, found in zip(*pair, strict=True):
            wrong = int(np.count_nonzero(expected.view(np.uint8) != found.view(np.uint8)))
            first = first or (f"{dim} x {width} bits, calibration {kind}" if wrong else "")
            differing, compared = differing + wrong, compared + expected.size
    make = _record("mismatches", backend, variant, differing, "values", compared, "")
    return [make("", "scorers", {"first": first})]


def _answers(
    backend: str, variant: str | None, dim: int, width: int, kind: str | None
) -> list[NDArray[Any]]:
    random = np.random.default_rng(dim)
    x = random.standard_normal((133, dim), dtype=np.float32)
    x[::9] = x[0]
    x[5] = 0
    q = random.standard_normal((19, dim), dtype=np.float32)
    index = Index(dim, width, backend=backend, variant=variant, seed=width)
    if kind:
        index.calibrate(random.standard_normal((3000, dim), dtype=np.float32), kind)
    index.add(x)
    stored = index._store.stored
    found = (*index.search(q, 30), *index.search(q[:1], 133))
    return [stored.tiles.copy(), stored.scales.copy(), *map(np.ascontiguousarray, found)]


def cost(backend: str, variant: str, n: int) -> list[Record]:
    """Time of a query and peak memory of a process that holds nothing but an index."""
    arguments = {"backend": backend, "variant": variant, "n": n, "dim": 128, "bits": 4}
    found = call_fresh(f"{__name__}:measure_cost", arguments)
    subject = f"{n} x 128, 4 bits"
    latency = _record("latency", backend, variant, found["us"], "us a query", _LATENCIES, "")
    peak = _record("peak_rss", backend, variant, found["peak"], "bytes", 1, "")
    return [latency("", subject, found), peak("", subject, found)]


def measure_cost(backend: str, variant: str, n: int, dim: int, bits: int) -> dict[str, float]:
    """Median time of single queries, and the rise of the resident peak over the empty process."""
    from ..memory.process import Probe

    index = Index(dim, bits, backend=backend, variant=variant)
    random = np.random.default_rng(1)
    q = random.standard_normal((_LATENCIES, dim), dtype=np.float32)
    index.search(q, K)
    probe = Probe()

    def work() -> None:
        for start in range(0, n, _BLOCK):
            rows = min(_BLOCK, n - start)
            index.add(random.standard_normal((rows, dim), dtype=np.float32))

    peak = probe.peak_of(work)
    times = []
    for one in q:
        begun = time.perf_counter()
        index.search(one[np.newaxis], K)
        times.append(time.perf_counter() - begun)
    return {
        "us": float(np.median(times)) * 1e6,
        "fastest_us": min(times) * 1e6,
        "peak": float(peak.resident or peak.traced or 0),
        "held": float(sum(index.nbytes.values())),
    }


def _record(
    check: str, backend: str, variant: str, value: float, unit: str, n: int, data: str
) -> Any:
    """A record but for its mode, subject and detail."""
    stage = "real model scalar" if data in REAL else instruction_stage(backend, variant)

    def make(mode: str, subject: str, detail: dict[str, Any]) -> Record:
        return record(
            *(f"retrieval.{check}", stage, backend, variant, value, unit, n),
            preset=mode,
            subject=subject,
            detail=detail,
        )

    return make
