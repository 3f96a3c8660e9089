"""Faults 18, 27, 46 and 47: what a caller may hand over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import InputError, NonFiniteError, StateError
from kvassay.protocol import Cache

from ...common.specs import ONE_LAYER
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, same, seen, small


@case(18, "NaN or infinity in q, K or V", ONE_LAYER)
def not_finite(find: Findings, subject: Subject) -> None:
    """NaN, both infinities, 65505 and -65519 at first, middle and last places.

    Expected: refused, with layer, token, head and channel.
    """
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
    """Fortran order, transposed, negative step, gaps, unaligned, read-only; other dtypes.

    Expected: the same state, or refused.
    """
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


@case(46, "wrong shapes and counts taken", ONE_LAYER)
def shapes(find: Findings, subject: Subject) -> None:
    """Other head dims, head counts, axes and lists; more queries than tokens; layers and lengths
    that do not exist.

    Expected: refused by name, nothing changed.
    """
    spec = small()
    if not find.executes(subject.backend, spec):
        return
    k, v = kv(spec, 3)
    q = queries(spec, 1)[0]
    with filled(subject.backend, spec, *kv(spec, 20)) as cache:
        for what, a, b in (
            ("another head dim", k[..., :48], v[..., :48]),
            ("another head count", k[:, :1], v[:, :1]),
            ("two axes", k[0], v[0]),
            ("fewer values than keys", k, v[:2]),
            ("a list", k.tolist(), v.tolist()),
        ):
            find.kept(cache, partial(cache.append, 0, a, b), InputError, f"append of {what}")
        for what, bad in (
            ("another head dim", q[:, :48]),
            ("another head count", q[:2]),
            ("no queries", np.zeros((0, 4, 64), np.float32)),
            ("float64", q.astype(np.float64)),
        ):
            find.kept(cache, partial(cache.attend, 0, bad), InputError, f"attend with {what}")
        many = np.zeros((21, 4, 64), np.float32)
        find.kept(cache, partial(cache.attend, 0, many), StateError, "more queries than tokens")
        for layer in (-1, 1, 99):
            find.kept(cache, partial(cache.append, layer, k, v), InputError, f"layer {layer}")
        for n in (-1, 21):
            find.kept(cache, partial(cache.truncate, n), InputError, f"truncate to {n}")


@case(47, "inputs written to or kept", ONE_LAYER)
def inputs_untouched(find: Findings, subject: Subject) -> None:
    """Keys, values and queries are compared after the calls, then overwritten.

    Expected: read, never written; what the caller does to them later changes nothing.
    """
    spec = small(window=40)
    if not find.executes(subject.backend, spec):
        return
    k, v = kv(spec, 20)
    q = queries(spec, 2)
    given = [x.copy() for x in (k, v, q)]
    with subject.backend.prepare(spec) as cache:
        cache.append(0, k, v)
        before = seen(cache, q)
        for name, found, kept in zip(("keys", "values", "queries"), (k, v, q), given, strict=True):
            find.equal(found, kept, f"{name} after the calls")
        k[:], v[:] = 0, 0
        same(find, seen(cache, q), before, "the caller's arrays overwritten")
