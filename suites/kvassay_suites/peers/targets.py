"""What the native backend is meant to reach beside its peers, and whether it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from .cases import CASES
from .results import Figure, Results

#: A figure, and against whom or with what it was reached; None if it was not measured.
Finding = tuple[float, str] | None
Measure = Callable[[Results], Finding]

_DECODE: Final = {
    "decode-128-4096": 12,
    "decode-128-32768": 12,
    "decode-64-2048": 10,
    "decode-64-8192": 10,
}
_ATTENTION: Final = ("llama.cpp", "ONNX Runtime GQA", "torch SDPA")


@dataclass(frozen=True)
class Target:
    """A figure that must be at least `needed`; of a time in us, at most.

    `needed` holds for AVX-512. Of targets marked `by_width`, vectors half as wide owe half.
    """

    what: str
    needed: float
    measure: Measure
    at_most: bool = False
    by_width: bool = False

    def owed(self, variant: str) -> float:
        """What this variant owes."""
        half = self.by_width and not variant.startswith("avx512")
        return self.needed / 2 if half else self.needed

    def reached(self, value: float, variant: str) -> bool:
        """Whether a figure of this variant is good enough."""
        owed = self.owed(variant)
        return value <= owed if self.at_most else value >= owed


def _times(case: str, threads: int, *peers: str, type_: str = "") -> Measure:
    """How many times longer than ours the fastest of these peers took."""

    def measure(results: Results) -> Finding:
        found = [results.fastest(case, threads, peer, type_) for peer in peers]
        fastest = min((f for f in found if f), key=lambda figure: figure.ns, default=None)
        return _over(fastest, results.base(case, threads), fastest)

    return measure


def _scaling(case: str) -> Measure:
    """How many times longer one thread took than two."""
    return lambda results: _over(results.base(case, 1), results.base(case, 2))


def _over(a: Figure | None, b: Figure | None, against: Figure | None = None) -> Finding:
    ratio = a.over(b) if a and b else None
    return (ratio.median, against.name if against else "") if ratio else None


def _microseconds(case: str, peer: str) -> Measure:
    def measure(results: Results) -> Finding:
        found = results.fastest(case, 1, peer)
        return (found.ns / 1e3, found.type) if found else None

    return measure


def _each_query(case: str, decode: str) -> Measure:
    """Time of a decode step over that of one query of many."""

    def measure(results: Results) -> Finding:
        many, one = results.base(case, 1), results.base(decode, 1)
        if many is None or one is None:
            return None
        return one.ns / (many.ns / CASES[case].queries), "turns of their own"

    return measure


def _kernel_times(case: str, peer: str) -> Measure:
    """How many times longer a peer took than our kernel alone, which gives sums and no logits."""

    def measure(results: Results) -> Finding:
        other = results.fastest(case, 1, peer)
        return _over(other, results.fastest(case, 1, "kvassay kernel"), other)

    return measure


def _scan_targets() -> Iterator[Target]:
    for case, share in (("scan-l3", 0.66), ("scan-dram", 0.85)):
        for what, times in (("kernel", _kernel_times(case, "plain read")),
                            ("scores", _times(case, 1, "plain read"))):  # fmt: skip
            yield Target(f"{case}, {what}: share of a plain read", share, times, by_width=True)
    for peer in ("FAISS fast-scan", "turbovec"):
        yield Target(f"scan-l3, kernel: times {peer}", 1, _kernel_times("scan-l3", peer))
        yield Target(f"scan-l3, scores: times {peer}", 1, _times("scan-l3", 1, peer))
    yield Target("q.K^T, 8 / 32 heads: times numpy fp32", 1, _times("scores", 1, "numpy"))


def _decode_targets() -> Iterator[Target]:
    for threads in (1, 2):
        for case, needed in _DECODE.items():
            where = f"{case}, threads {threads}: times"
            fastest = _times(case, threads, *_ATTENTION)
            yield Target(f"{where} the fastest peer", needed, fastest, by_width=True)
            if case.startswith("decode-128"):
                q4_0 = _times(case, threads, "llama.cpp", type_="q4_0")
                yield Target(f"{where} llama.cpp q4_0", 35, q4_0, by_width=True)
    read = _times("decode-128-32768", 1, "plain read")
    yield Target("decode-128-32768: times a plain read of the fp16 cache", 2, read, by_width=True)
    for case in _DECODE:
        yield Target(f"{case}: two threads over one", 1.8, _scaling(case))


def _other_targets() -> Iterator[Target]:
    for case in ("prefill-64", "prefill-512"):
        step = _each_query(case, "decode-128-4096")
        yield Target(f"{case}: decode step over the time of a query", 1, step)
    for case in ("prefill-64", "prefill-512", "seal"):
        q8_0 = _times(case, 1, "llama.cpp", type_="q8_0")
        yield Target(f"{case}: times llama.cpp q8_0", 1, q8_0)
    append = _microseconds("append", "kvassay")
    yield Target("append of a token, us", 3, append, at_most=True)
    transform = _microseconds("transform", "kvassay kernel")
    yield Target("query transform, 32 x 128, us", 10, transform, at_most=True)


TARGETS: Final = (*_scan_targets(), *_decode_targets(), *_other_targets())
