"""Faults 18 and 27: what a caller may hand over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import InputError, NonFiniteError
from kvassay.protocol import Cache

from ..common.specs import ONE_LAYER
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, seen, small


@case(18, "NaN or infinity in q, K or V", ONE_LAYER)
def not_finite(find: Findings, subject: Subject) -> None:
    """Refused, the place named, nothing changed: whatever the codec, wherever the number."""
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, layers=2)
        if not find.executes(subject.backend, spec):
            continue
        with filled(subject.backend, spec, *kv(spec, 20)) as cache:
            for bad in (np.nan, np.inf, -np.inf, 65505.0, -65519.0):
                for place in ((0, 0, 0), (8, 1, 31), (17, 1, 63)):
                    for stream in (0, 1):
                        rows = kv(spec, 18)
                        rows[stream][place] = bad
                        what = f"{keys}/{values}: append of {bad} as {'kv'[stream]}"
                        error = find.kept(cache, _append(cache, *rows), NonFiniteError, what)
                        named = [getattr(error, n, None) for n in ("token", "head", "channel")]
                        find.equal(
                            (named, getattr(error, "layer", None)), ([*place], 1), f"{what}: place"
                        )
                q = queries(spec, 3)
                q[2, 3, 63] = bad
                what = f"{keys}/{values}: a query with {bad}"
                find.kept(cache, _call(cache.attend, q), NonFiniteError, what)
                find.kept(cache, _call(cache.attend, q[2]), NonFiniteError, f"{what} alone")
                find.kept(cache, _call(cache.scores, q[2]), NonFiniteError, f"{what} for scores")


def _append(cache: Cache, k: NDArray[np.float32], v: NDArray[np.float32]) -> Callable[[], object]:
    return lambda: cache.append(1, k, v)


def _call(function: Callable[[int, Any], object], q: NDArray[Any]) -> Callable[[], object]:
    return lambda: function(1, q)


@case(27, "strides ignored", ONE_LAYER)
def strides(find: Findings, subject: Subject) -> None:
    """The same numbers however they lie: the same state and output, or refused by name."""
    spec = small()
    k, v = kv(spec, 20)
    q = queries(spec, 3)
    with filled(subject.backend, spec, k, v) as cache:
        plain = seen(cache, q)
    for name, lay in _layouts():
        with subject.backend.prepare(spec) as cache:
            try:
                cache.append(0, lay(k), lay(v))
                found = seen(cache, q)
                found["outputs of 3 queries"] = cache.attend(0, lay(q)).tobytes()
            except InputError as error:
                find.holds(len(str(error)) > 10, f"{name}: refused with a reason", error)
                continue
        for what, bytes_ in found.items():
            find.equal(bytes_, plain[what], f"{name}: {what}")
    with subject.backend.prepare(spec) as cache:
        for dtype in ("float64", "float16", ">f4", "int32"):
            rows = k.astype(dtype)
            find.kept(cache, _append0(cache, rows), InputError, f"dtype {dtype}")


def _append0(cache: Cache, rows: NDArray[Any]) -> Callable[[], object]:
    return lambda: cache.append(0, rows, rows)


def _layouts() -> Iterator[tuple[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]]:
    yield "Fortran order", np.asfortranarray
    yield "transposed", lambda x: np.ascontiguousarray(x.T).T
    yield "heads first", lambda x: np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
    yield "negative step", lambda x: np.ascontiguousarray(x[::-1])[::-1]
    yield "every second element", lambda x: np.repeat(x, 2, axis=-1)[..., ::2]
    yield "inside a larger array", lambda x: np.pad(x, ((1, 1), (1, 1), (3, 5)))[1:-1, 1:-1, 3:-5]
    yield "unaligned", _unaligned
    yield "read-only", _read_only


def _unaligned(x: NDArray[np.float32]) -> NDArray[np.float32]:
    buffer = bytearray(x.nbytes + 1)
    out: NDArray[np.float32] = np.frombuffer(buffer, np.float32, x.size, 1).reshape(x.shape)
    out[:] = x
    return out


def _read_only(x: NDArray[np.float32]) -> NDArray[np.float32]:
    out = x.copy()
    out.flags.writeable = False
    return out
