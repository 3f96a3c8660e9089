"""Faults 30 to 34: what is flushed, what is kept, what a truncation, a reset or a fork leaves."""

from __future__ import annotations

from functools import partial

import numpy as np

import kvassay
from kvassay.errors import TruncateError
from kvassay.protocol import Backend, Cache

from ...common.specs import MATH, ONE_LAYER
from ...oracle import attend64, decode_cache, read_dump, read_page
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, relative, same, seen, small


@case(30, "KIVI that quantizes nothing", MATH)
def kivi_runs(find: Findings, subject: Subject) -> None:
    """Window 32, 32 tokens and 168 single steps at 2 bits.

    Expected: 5 pages, streamed equal to one append, every group has a step, aged keys lose what 2
    bits lose.
    """
    spec = small(keys="kivi:2", values="kivi:2", page_tokens=32, window=32)
    if not find.executes(subject.backend, spec):
        return
    k, v = kv(spec, 200)
    with (
        filled(subject.backend, spec, k, v) as whole,
        filled(subject.backend, spec, k, v, [32] + [1] * 168) as steps,
    ):
        find.equal(len(steps.pages(0)), (200 - 32) // 32, "pages after 200 tokens")
        same(find, seen(steps, queries(spec, 3)), seen(whole, queries(spec, 3)), "streamed")
        pages, state, billed = steps.pages(0), decode_cache(steps.dump())[0], steps.nbytes
        scores = steps.scores(0, queries(spec, 1)[0])
    aged = len(pages) * 32
    for name, x_hat, x in (("keys", state.k, k), ("values", state.v, v)):
        off = relative(x_hat[:aged], x[:aged])
        find.holds(0.1 < off < 0.45, f"aged {name} lose what 2 bits lose", off)
    for number, data in enumerate(pages):
        page = read_page(data)
        for name in ("key", "value"):
            least = page.real(f"{name} steps").min()
            find.holds(least > 0, f"page {number}: every {name} group has a step", least)
    find.equal(billed["codes"], aged * 2 * 64 * 4 // 8, "bytes billed for codes")
    group = np.repeat(k, 2, axis=1)
    plain = np.einsum("thd,hd->ht", group, queries(spec, 1)[0]) / 8
    off = relative(scores[:, :aged], plain[:, :aged])
    find.holds(off > 0.05, "scores of aged keys are not those of exact keys", off)


@case(31, "window said, everything kept", ONE_LAYER)
def window_kept(find: Findings, subject: Subject) -> None:
    """Span 4, 336 single tokens, 0 and 2 sinks.

    Expected: attention over the last 4 and the sinks, exactly; bytes constant.
    """
    for keys, values in (("fp16", "fp16"), ("turbo:4", "turbo:4"), ("kivi:4", "kivi:4")):
        for sinks in (0, 2):
            spec = small(keys=keys, values=values, span=4, sinks=sinks)
            if find.executes(subject.backend, spec):
                _span(find, subject.backend, spec, f"{keys}/{values} with {sinks} sinks")


def _span(find: Findings, backend: Backend, spec: kvassay.Spec, who: str) -> None:
    k, v = kv(spec, 336)
    q = queries(spec, 1)[0]
    sizes = []
    with backend.prepare(spec) as cache:
        for n in range(1, 337):
            cache.append(0, k[n - 1 : n], v[n - 1 : n])
            if n in (3, 10, 20, 77, 336):
                state = decode_cache(cache.dump())[0]
                exact = attend64(state.k, state.v, q, state.softmax_scale, 4, spec.sinks, n)
                off = relative(cache.attend(0, q), exact)
                find.holds(off < 0.03, f"{who}: attention at {n} tokens over the last 4", off)
                hidden = int(np.isneginf(cache.scores(0, q)[0]).sum())
                find.equal(hidden, max(0, n - 4 - spec.sinks), f"{who}: tokens masked at {n}")
                find.equal(cache.length, n, f"{who}: tokens appended")
            if n % 32 == 0 and n >= 64:
                sizes.append(sum(cache.nbytes.values()))
    find.holds(max(sizes) <= sizes[0], f"{who}: bytes stay constant", sizes)


@case(32, "ring that wraps", ONE_LAYER)
def ring_wrap(find: Findings, subject: Subject) -> None:
    """Window 4, sinks 0 and 2, three chunkings of 45 tokens; every cut from 45.

    Expected: the stated layout at every length; a cut equals a fresh cache or is refused.
    """
    for sinks in (0, 2):
        for keys, values in PAIRS:
            spec = small(keys=keys, values=values, window=4, sinks=sinks)
            if not find.executes(subject.backend, spec):
                continue
            k, v = kv(spec, 45)
            for chunks in ([1] * 45, [16, 16, 13], [20, 20, 5]):
                who = f"{keys}/{values}, {sinks} sinks, chunks of {chunks[0]}"
                with subject.backend.prepare(spec) as cache:
                    done = 0
                    for n in chunks:
                        cache.append(0, k[done : done + n], v[done : done + n])
                        done += n
                        _layout(find, spec, cache, f"{who}, {done} tokens")
            _cuts(find, subject.backend, spec, f"{keys}/{values}, {sinks} sinks")


def _layout(find: Findings, spec: kvassay.Spec, cache: Cache, who: str) -> None:
    length = cache.length
    sealed = max(0, (length - spec.sinks - spec.window) // spec.page_tokens)
    sinks = min(length, spec.sinks)
    rest = length - sinks - sealed * spec.page_tokens
    layer = read_dump(cache.dump()).layers[0]
    found = [len(cache.pages(0))]
    found += [layer.sections[f"{name} keys"].shape[1] for name in ("sink", "residual")]
    find.equal(found, [sealed, sinks, rest], f"{who}: pages, sinks and residual")
    token = 2 * 2 * spec.kv_heads * spec.head_dim
    billed = [cache.nbytes[part] for part in ("sinks", "residual")]
    find.equal(billed, [sinks * token, rest * token], f"{who}: bytes of sinks and residual")


def _cuts(find: Findings, backend: Backend, spec: kvassay.Spec, who: str) -> None:
    """Every length from 45 tokens: reached as if only those had come, or refused."""
    k, v = kv(spec, 45)
    layer = spec.layer(0)
    for n in range(45):
        sealed = layer.sealed(n)
        whole = n == spec.sinks + sealed * spec.page_tokens
        legal = n <= spec.sinks or sealed == layer.sealed(45) or whole
        with filled(backend, spec, k, v) as cache:
            if not legal:
                error = find.kept(
                    cache,
                    partial(cache.truncate, n),
                    TruncateError,
                    f"{who}: cut to {n}",
                )
                find.holds(bool(getattr(error, "allowed", ())), f"{who}: cut to {n} names lengths")
                continue
            cache.truncate(n)
            with filled(backend, spec, k[:n], v[:n]) as fresh:
                find.equal(cache.dump(), fresh.dump(), f"{who}: cut to {n}")


@case(33, "truncation moves the length, not the flushed part", ONE_LAYER)
def flushed_part(find: Findings, subject: Subject) -> None:
    """20 tokens cut to 18, 17, 16, 8, 4, 0, then 30 more; two layers of which one refuses.

    Expected: equal to a fresh cache of the survivors, or refused for all layers.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, layers=2)
        if not find.executes(subject.backend, spec):
            continue
        k, v = kv(spec, 40)
        more = kv(spec, 30, seed=7)
        for n in (18, 17, 16, 8, 4, 0):
            who = f"{keys}/{values}: 20 tokens cut to {n}"
            with filled(subject.backend, spec, k[:20], v[:20]) as cache:
                before = cache.dump()
                try:
                    cache.truncate(n)
                except TruncateError:
                    find.holds(n in (4, 8), f"{who}: allowed, no page is in the way")
                    find.equal(cache.dump(), before, f"{who}: refused, before and after")
                    continue
                find.holds(n not in (4, 8), f"{who}: refused, since its tokens are codes")
                survivors = [np.concatenate([x[:n], y]) for x, y in zip((k, v), more, strict=True)]
                for layer in range(2):
                    cache.append(layer, *more)
                with filled(subject.backend, spec, *survivors) as fresh:
                    q = queries(spec, 3)
                    same(find, seen(cache, q), seen(fresh, q), f"{who}, then 30 more")
    _all_layers_or_none(find, subject.backend)


def _all_layers_or_none(find: Findings, backend: Backend) -> None:
    """A cut that one layer refuses leaves the others as they were."""
    spec = small(layers=2)
    k, v = kv(spec, 40)
    with backend.prepare(spec) as cache:
        cache.append(0, k[:20], v[:20])
        cache.append(1, k, v)
        what = "a cut to 18 that layer 1 cannot make"
        find.kept(cache, lambda: cache.truncate(18), TruncateError, what)
        find.equal(cache.lengths, (20, 40), "lengths after it")


@case(34, "reset and forks that remember", ONE_LAYER)
def reset_and_fork(find: Findings, subject: Subject) -> None:
    """Reset, two forks with other tokens, one truncated, the parent closed first.

    Expected: equal to new caches; the parent unchanged.
    """
    for keys, values in PAIRS:
        fields = {"key_centre": "frozen", "value_centre": "frozen", "window": 5, "sinks": 1}
        spec = small(keys=keys, values=values, **fields)
        if not find.executes(subject.backend, spec):
            continue
        q = queries(spec, 3)
        k, v = kv(spec, 40)
        with subject.backend.prepare(spec) as new, filled(subject.backend, spec, k, v) as cache:
            cache.attend(0, q)
            cache.reset()
            find.equal(cache.dump(), new.dump(), f"{keys}/{values}: dump after a reset")
            for part in ("codes", "scales", "means", "residual", "sinks"):
                what = f"{keys}/{values}: bytes of {part} after a reset"
                find.equal(cache.nbytes[part], new.nbytes[part], what)
            other = kv(spec, 44, seed=3)
            cache.append(0, *other)
            new.append(0, *other)
            same(find, seen(cache, q), seen(new, q), f"{keys}/{values} used again")
        _forks(find, subject.backend, spec, f"{keys}/{values}")


def _forks(find: Findings, backend: Backend, spec: kvassay.Spec, who: str) -> None:
    k, v = kv(spec, 40)
    q = queries(spec, 3)
    parent = filled(backend, spec, k, v)
    before = seen(parent, q)
    ways = []
    for seed, cut in ((4, 40), (5, 39)):
        fork = parent.fork()
        fork.truncate(cut)
        more = kv(spec, 30, seed=seed)
        fork.append(0, *more)
        tokens = [np.concatenate([x[:cut], y]) for x, y in zip((k, v), more, strict=True)]
        with filled(backend, spec, *tokens) as fresh:
            ways.append((fork, seen(fresh, q)))
        same(find, seen(parent, q), before, f"{who}: the parent of fork {len(ways)}, which grew")
    parent.append(0, k[:9], v[:9])
    parent.close()
    for number, (fork, expected) in enumerate(ways, 1):
        same(find, seen(fork, q), expected, f"{who}: fork {number}, its parent closed")
        fork.close()
