"""Speed of the Rust library beside the C library: each variant that both have, by turns.

Usage: python backends/bench/libraries.py [REPEATS [VARIANT]]. Prints medians of CPU time and how
fast Rust is in units of C (above 1: faster).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

import kvassay
from kvassay import Cache, Spec
from kvassay.protocol import FloatArray
from kvassay_backends import native, rust

LIBRARIES: Final = {"C": native.backend, "Rust": rust.backend}
LARGE: Final = {"layers": 1, "kv_heads": 8, "query_heads": 32, "head_dim": 128}
SMALL: Final = {"layers": 1, "kv_heads": 3, "query_heads": 9, "head_dim": 64}
#: What is attended: preset, shape, tokens, queries.
ATTEND: Final = (
    ("turbo", LARGE, 4096, 1),
    ("turbo", SMALL, 2048, 1),
    ("turbo", LARGE, 1024, 64),
    ("turbo-qjl", LARGE, 4096, 1),
    ("kivi", LARGE, 4096, 1),
    ("fp16", LARGE, 4096, 1),
)
#: What is appended: preset, tokens at once, calls.
APPEND: Final = (("turbo", 1, 64), ("turbo", 1024, 1), ("turbo-qjl", 1024, 1), ("kivi", 1024, 1))

Case = tuple[str, dict[str, Callable[[], None]]]


def rows(count: int, spec: Spec, heads: int) -> FloatArray:
    """Normal numbers: (count, heads, head_dim)."""
    shape = (count, heads, spec.head_dim)
    return np.random.default_rng(count).standard_normal(shape, np.float32)


def filled(library: str, variant: str, spec: Spec, tokens: int) -> Cache:
    """A cache of one library that holds normal tokens."""
    cache = LIBRARIES[library].load(variant).prepare(spec)
    cache.append(0, rows(tokens, spec, spec.kv_heads), rows(tokens, spec, spec.kv_heads))
    return cache


def attends(cache: Cache, q: FloatArray) -> Callable[[], None]:
    """A call that attends."""

    def call() -> None:
        cache.attend(0, q)

    return call


def appends(cache: Cache, x: FloatArray, calls: int) -> Callable[[], None]:
    """A call that appends this often; what is appended at once goes into an empty cache."""

    def call() -> None:
        if calls == 1:
            cache.reset()
        for _ in range(calls):
            cache.append(0, x, x)

    return call


def cases(variant: str) -> Iterator[Case]:
    """Name and what to time, by library."""
    for preset, shape, tokens, queries in ATTEND:
        spec = kvassay.preset(preset, **shape)
        q = rows(queries, spec, spec.query_heads)
        what = f"attend {preset} {spec.kv_heads}/{spec.query_heads} d{spec.head_dim}"
        timed = {name: attends(filled(name, variant, spec, tokens), q) for name in LIBRARIES}
        yield f"{what}, {queries} x {tokens}", timed
    for preset, tokens, calls in APPEND:
        spec = kvassay.preset(preset, **LARGE)
        x = rows(tokens, spec, spec.kv_heads)
        timed = {n: appends(filled(n, variant, spec, 200), x, calls) for n in LIBRARIES}
        yield f"append {preset}, {calls} x {tokens}", timed


def measure(timed: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median CPU time of a call in microseconds, by library, measured by turns."""
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, call in timed.items():
            start = time.thread_time_ns()
            call()
            times[name].append((time.thread_time_ns() - start) / 1000)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> int:
    """Measure every case of every variant that runs in both libraries."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    both = [
        variant
        for variant, state in rust.backend.variants().items()
        if state.status == "ready" and native.backend.variants().get(variant) == state
    ]
    for variant in [v for v in both if v in (sys.argv[2:] or both)]:
        ratios = []
        for name, timed in cases(variant):
            found = measure(timed, repeats)
            ratios.append(found["C"] / found["Rust"])
            print(
                f"{variant:8} {name:34} C {found['C']:10.0f} us  Rust {found['Rust']:10.0f} us  "
                f"{ratios[-1]:5.2f}",
                flush=True,
            )
        print(f"{variant:8} least {min(ratios):.2f}, median {statistics.median(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
