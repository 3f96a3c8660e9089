"""Faults 5, 17 and 25: what only shows in a process of its own, or in used memory."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.protocol import Cache

from ...common.inputs import gaussian
from ...common.process import call_fresh
from ...common.specs import MATH, ONE_LAYER
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, same, seen, small

#: Makes glibc fill what it hands out with 0xFE: NaN as fp16, huge as float32.
POISON: Final = {"MALLOC_PERTURB_": "1", "PYTHONMALLOC": "malloc"}
_HERE: Final = "kvassay_suites.correctness.faults.processes"


@case(5, "transforms that depend on threads or process", MATH)
def threads_and_processes(find: Findings, subject: Subject) -> None:
    """1 and 8 threads in two processes, all energy in 8 channels.

    Expected: equal SHA-256 of everything.
    """
    who = {"backend": subject.name, "variant": subject.variant}
    one, eight = (call_fresh(f"{_HERE}:digests", {**who, "threads": threads}) for threads in (1, 8))
    find.holds(len(one) > 0, "at least one codec runs", len(one))
    for name, digest in one.items():
        find.equal(eight[name], digest, f"{name} with 8 threads in another process")


def digests(backend: str, variant: str, threads: int) -> dict[str, str]:
    """SHA-256 of everything seen of each codec's cache, made with so many threads."""
    loaded = kvassay.load(backend, variant)
    found = {}
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, window=3, key_centre="page")
        if not loaded.supports(spec):
            continue
        x = np.zeros((600, 2, 64), np.float32)
        x[..., :8] = gaussian(5, 600, 2, 8) * 10
        with loaded.prepare(spec, threads=threads) as cache:
            for start in range(0, 600, 150):
                cache.append(0, x[start : start + 150], x[::-1][start : start + 150])
            for name, bytes_ in seen(cache, queries(spec, 5)).items():
                found[f"{keys}/{values}: {name}"] = hashlib.sha256(bytes_).hexdigest()
    return found


@case(17, "NaN in spare slots", ONE_LAYER)
def spare_slots(find: Findings, subject: Subject) -> None:
    """After truncation, reset and reuse; in memory that held NaN; in a process whose allocator
    fills new memory with 0xFE.

    Expected: equal to a fresh cache, to the bit.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, sinks=2, window=100)
        if not find.executes(subject.backend, spec):
            continue
        q = queries(spec, 3)
        k, v = kv(spec, 33)
        with filled(subject.backend, spec, k, v) as fresh:
            expected = seen(fresh, q)
        huge = np.full((118, 2, 64), 65504, np.float32)
        with subject.backend.prepare(spec) as cache:
            for way in ("truncation", "reset"):
                cache.append(0, huge, -huge)
                cache.truncate(0) if way == "truncation" else cache.reset()
                cache.append(0, k, v)
                same(find, seen(cache, q), expected, f"{keys}/{values} after {way}")
                cache.reset()
        _poison()
        with filled(subject.backend, spec, k, v, [30, 3]) as cache:
            same(find, seen(cache, q), expected, f"{keys}/{values} in memory that held NaN")
    who = {"backend": subject.name, "variant": subject.variant, "threads": 1}
    plain = call_fresh(f"{_HERE}:digests", who)
    poisoned = call_fresh(f"{_HERE}:digests", who, **POISON)
    for name, digest in plain.items():
        find.equal(poisoned[name], digest, f"{name} in a process whose new memory is 0xFE")


def _poison() -> None:
    """Leave freed blocks of many sizes behind, full of 0xFF."""
    blocks = [np.full(1 << size, 0xFF, np.uint8) for size in range(6, 21) for _ in range(8)]
    del blocks


@case(25, "flush to zero switched on by loading", MATH)
def flush_to_zero(find: Findings, subject: Subject) -> None:
    """1e-40 x 1 before and after loading and using a backend, in that thread and in a new one.

    Expected: never 0.
    """
    who = {"backend": subject.name, "variant": subject.variant}
    for when, products in call_fresh(f"{_HERE}:subnormal_products", who).items():
        for what, kept in products.items():
            find.holds(kept, f"{when}, {what}: subnormal numbers are kept")


def subnormal_products(backend: str, variant: str) -> dict[str, dict[str, bool]]:
    """Whether subnormal products survive, at each moment and in each thread."""
    found = {"before loading": _products()}
    loaded = kvassay.load(backend, variant)
    found["after loading"] = _products()
    spec = small()
    if loaded.supports(spec):
        with loaded.prepare(spec, threads=2) as cache:
            _use(cache)
            found["while a cache is open"] = _products()
            worker = threading.Thread(target=_use, args=(cache,))
            worker.start()
            worker.join()
        found["after use by two threads"] = _products()
    return found


def _use(cache: Cache) -> None:
    cache.append(0, *kv(cache.spec, 40))
    cache.attend(0, queries(cache.spec, 3))


def _products() -> dict[str, bool]:
    """Here and in a thread that starts now, which inherits what this one has set."""
    found = {"this thread": _kept()}
    worker = threading.Thread(target=lambda: found.update({"a new thread": _kept()}))
    worker.start()
    worker.join()
    return found


def _kept() -> bool:
    tiny: NDArray[np.float32] = np.full(64, 1e-40, np.float32) * np.ones(64, np.float32)
    whole = ctypes.c_float(float(tiny[0])).value
    return bool((tiny > 0).all()) and whole > 0 and 5e-324 * float(np.float64(1)) > 0
