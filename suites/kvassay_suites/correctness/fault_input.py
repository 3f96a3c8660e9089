"""Faults of input: NaN, infinities, ranges, shapes, dtypes, strides, unknown layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from kvassay.errors import InputError, NonFiniteError, StateError, UnsupportedError
from kvassay.protocol import Backend, Cache

from .fault_case import Fault, expect, expect_refusal, filled, kv, query, turbo


def _append(cache: Cache, *arguments: Any) -> Callable[[], None]:
    return lambda: cache.append(*arguments)


def _attend(cache: Cache, *arguments: Any) -> Callable[[], object]:
    return lambda: cache.attend(*arguments)


def _truncate(cache: Cache, n: int) -> Callable[[], None]:
    return lambda: cache.truncate(n)


def not_finite(backend: Backend) -> None:
    """NaN, infinity and magnitudes beyond fp16: refused, naming the place, changing nothing."""
    spec = turbo()
    with filled(backend, spec, 20) as cache:
        for bad in (np.nan, np.inf, -np.inf, 65505.0, -65519.0, 1e30):
            for which in (0, 1):
                rows = kv(spec, 18)
                rows[which][17, 1, 63] = bad
                error = expect_refusal(
                    cache, NonFiniteError, f"append of {bad}", _append(cache, 0, *rows)
                )
                place = [getattr(error, name) for name in ("layer", "token", "head", "channel")]
                expect(place == [0, 17, 1, 63], f"append of {bad}: placed at {place}")
            q = query(spec)
            q[3, 0] = bad
            expect_refusal(cache, NonFiniteError, f"query of {bad}", _attend(cache, 0, q))


def edge_of_fp16(backend: Backend) -> None:
    """The largest fp16 magnitude is accepted everywhere; nothing overflows or saturates."""
    spec = turbo()
    with backend.prepare(spec) as cache:
        rows = np.full((20, 2, 64), 65504, np.float32)
        cache.append(0, rows, -rows)
        q = np.full((4, 64), -65504, np.float32)
        expect(np.isfinite(cache.attend(0, q)).all(), "the output is not finite")
        scores = cache.scores(0, q)
        # The unbiased scale makes the score of a key with itself exact, whatever its codes.
        exact = -(65504.0**2) * 64 * spec.effective_softmax_scale
        off = np.abs(scores / exact - 1).max()
        expect(off < 0.02, f"scores of the largest keys are off by {off}, relative")


def shapes(backend: Backend) -> None:
    """Wrong shapes, dtypes and counts: refused, changing nothing."""
    spec = turbo()
    k, v = kv(spec, 3)
    with filled(backend, spec, 20) as cache:
        for what, a, b in (
            ("another head dim", k[..., :48], v[..., :48]),
            ("another head count", k[:, :1], v[:, :1]),
            ("two axes", k[0], v[0]),
            ("fewer values than keys", k, v[:2]),
            ("float64", k.astype(np.float64), v.astype(np.float64)),
            ("int32", k.astype(np.int32), v.astype(np.int32)),
            ("a list", k.tolist(), v.tolist()),
        ):
            expect_refusal(cache, InputError, f"append of {what}", _append(cache, 0, a, b))
        q = query(spec)
        for what, bad in (
            ("another head dim", q[:, :48]),
            ("another head count", q[:2]),
            ("no queries", np.zeros((0, 4, 64), np.float32)),
            ("float64", q.astype(np.float64)),
        ):
            expect_refusal(cache, InputError, f"attend with {what}", _attend(cache, 0, bad))
        many = np.zeros((21, 4, 64), np.float32)
        expect_refusal(cache, StateError, "more queries than tokens", _attend(cache, 0, many))
        for layer in (-1, 1, 99):
            expect_refusal(cache, InputError, f"layer {layer}", _append(cache, layer, k, v))
        for n in (-1, 21):
            expect_refusal(cache, InputError, f"truncate to {n}", _truncate(cache, n))


def strides(backend: Backend) -> None:
    """The same values however they lie in memory: the same state and output."""
    spec = turbo()
    k, v = kv(spec, 20)
    q = query(spec)
    seen = set()
    for lay in (
        np.ascontiguousarray,
        np.asfortranarray,
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
        lambda x: np.ascontiguousarray(np.swapaxes(x, 0, 1)).swapaxes(0, 1),
        _read_only,
    ):
        with backend.prepare(spec) as cache:
            cache.append(0, lay(k), lay(v))
            seen.add((cache.dump(), cache.attend(0, lay(q)).tobytes()))
    expect(len(seen) == 1, f"{len(seen)} different results")


def _read_only(x: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    out = x.copy()
    out.setflags(write=False)
    return out


def inputs_untouched(backend: Backend) -> None:
    """Inputs are read, never written, and not kept: changing them later changes nothing."""
    spec = turbo(window=40)
    k, v = kv(spec, 20)
    kept = k.copy()
    with backend.prepare(spec) as cache:
        cache.append(0, k, v)
        expect((k == kept).all(), "append wrote to its input")
        before = cache.dump()
        k[:] = 0
        expect(cache.dump() == before, "the cache shares memory with its input")


def unsupported(backend: Backend) -> None:
    """A spec is either executed or refused with a reason, before any data."""
    for d in (16, 64, 320, 576):
        spec = turbo(head_dim=d)
        support = backend.supports(spec)
        if support:
            filled(backend, spec, 20).close()
            continue
        expect(bool(support.reason), f"head dim {d} is refused without a reason")
        try:
            backend.prepare(spec)
        except UnsupportedError:
            continue
        raise Fault(f"head dim {d} is not supported, but prepared")


CASES: Final[Mapping[str, Callable[[Backend], None]]] = {
    "not finite": not_finite,
    "edge of fp16": edge_of_fp16,
    "shapes": shapes,
    "strides": strides,
    "inputs untouched": inputs_untouched,
    "unsupported": unsupported,
}
