"""Faults 45, 48 and 49: caches that are empty or closed, layers, tokens inside the window."""

from __future__ import annotations

from functools import partial

import numpy as np

from kvassay.errors import StateError

from ...common.specs import ONE_LAYER
from ...oracle import scores64
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, same, seen, small


@case(45, "empty and closed caches", ONE_LAYER)
def empty_and_closed(find: Findings, subject: Subject) -> None:
    """An empty cache, also one that was given nothing; its dump restored; a cache closed twice.

    Expected: no pages, attend and scores refused; it goes on as a new one; closed, every call is
    refused.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, window=4)
        if not find.executes(subject.backend, spec):
            continue
        who, q = f"{keys}/{values}", queries(spec, 3)
        k, v = kv(spec, 40)
        with subject.backend.prepare(spec) as cache, filled(subject.backend, spec, k, v) as fresh:
            cache.append(0, k[:0], v[:0])
            cache.truncate(0)
            find.equal((cache.length, cache.pages(0)), (0, []), f"{who}: an empty cache")
            for name in ("attend", "scores"):
                call = partial(getattr(cache, name), 0, q[0])
                find.kept(cache, call, StateError, f"{who}: {name} on an empty cache")
            with subject.backend.restore(spec, cache.dump()) as restored:
                restored.append(0, k, v)
                same(find, seen(restored, q), seen(fresh, q), f"{who}: restored empty, then filled")
        cache.close()
        for name, arguments in (
            ("attend", (0, q)), ("append", (0, k, v)), ("dump", ()), ("fork", ()),
        ):  # fmt: skip
            call = partial(getattr(cache, name), *arguments)
            find.refused(call, StateError, f"{who}: {name} on a closed cache")


@case(48, "a layer attends another's tokens", ONE_LAYER)
def own_layer(find: Findings, subject: Subject) -> None:
    """Three layers with other tokens each, beside caches of one layer.

    Expected: each layer answers as a cache of its own would, to the bit.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, layers=3, window=4)
        alone = small(keys=keys, values=values, window=4)
        if not find.executes(subject.backend, spec):
            continue
        q = queries(spec, 3)
        tokens = [kv(spec, 40, seed=10 + layer) for layer in range(3)]
        with subject.backend.prepare(spec) as cache:
            for layer in range(3):
                cache.append(layer, *tokens[layer])
            for layer in range(3):
                who = f"{keys}/{values}: layer {layer} and a cache of one layer"
                with filled(subject.backend, alone, *tokens[layer]) as single:
                    for name, asked in (("attend", q), ("scores", q[0])):
                        found, wanted = (
                            getattr(one, name)(number, asked)
                            for one, number in ((cache, layer), (single, 0))
                        )
                        find.equal(found, wanted, f"{who}: {name}")


@case(49, "window tokens scored from codes", ONE_LAYER)
def inside_the_window(find: Findings, subject: Subject) -> None:
    """70 single tokens at 2 bits, window 20, 2 sinks; scores at every length.

    Expected: sinks and the newest tokens, the window at least, are scored as fp16; aged ones are
    not.
    """
    for keys in ("turbo:2", "kivi:2"):
        spec = small(keys=keys, values="fp16", sinks=2, window=20)
        if not find.executes(subject.backend, spec):
            continue
        k, v = kv(spec, 70)
        q = queries(spec, 1)[0]
        with subject.backend.prepare(spec) as cache:
            for n in range(1, 71):
                cache.append(0, k[n - 1 : n], v[n - 1 : n])
                half = k[:n].astype(np.float16).astype(np.float64)
                exact = scores64(half, q, spec.effective_softmax_scale, 0, 0, n)
                off = np.abs(cache.scores(0, q) - exact).max(axis=0)
                aged = slice(2, 2 + 16 * spec.layer(0).sealed(n))
                spared = int((off[aged] < 1e-5).sum())
                find.equal(spared, 0, f"{keys}, {n} tokens: aged keys that are scored exactly")
                off[aged] = 0
                worst = int(off.argmax())
                what = f"{keys}, {n} tokens: token {worst} of the window is scored as fp16"
                find.holds(off.max() < 1e-5, what, f"off by {off.max()}")
