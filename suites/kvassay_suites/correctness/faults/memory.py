"""Faults 41, 42 and 44: peaks above fp16, bytes not counted, views that outlive what they show."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

import kvassay
from kvassay.errors import StateError
from kvassay.page.costs import Costs
from kvassay.protocol import BYTE_PARTS

from ...common.process import call_fresh
from ...common.specs import ONE_LAYER
from ...memory.process import ENVIRONMENT
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, small

_TOKENS: Final = 4096
_SHAPE: Final = {"layers": 1, "kv_heads": 2, "query_heads": 4, "head_dim": 64}
#: Bits a value of keys with one float32 number a vector, and with two (fault 42).
_HAND: Final = (
    (128, "turbo:3", "fp16", 3 + 16 / 128),
    (64, "turbo:3", "fp16", 3 + 16 / 64),
    (128, "turbo:3", "u8", 3 + 8 / 128 + 32 / (64 * 128)),
    (128, "turbo:3+qjl", "fp16", 4 + 32 / 128),
)


@case(41, "peak above that of fp16", ONE_LAYER)
def peak(find: Findings, subject: Subject) -> None:
    """4096 tokens in one append and in chunks of 64, in fresh processes.

    Expected: every phase under the bytes of the tokens as fp16.
    """
    preset = "turbo" if subject.backend.supports(_spec("turbo")) else "kivi"
    if not find.executes(subject.backend, _spec(preset)):
        return
    plain = Costs.of(_spec(preset)).fp16(_TOKENS)
    for chunk in (_TOKENS, 64):
        phases = call_fresh(
            "kvassay_suites.memory.peak:measure",
            {
                **{"backend": subject.name, "variant": subject.variant, "preset": preset},
                **{"shape": _SHAPE, "tokens": _TOKENS, "chunk": chunk, "trace": False},
            },
            **ENVIRONMENT,
        )
        for name, figures in phases.items():
            found = [figures[k] for k in ("counted", "resident") if figures[k] is not None]
            what = f"{preset}, chunks of {chunk}: {name} peaks under fp16's {plain} bytes"
            find.holds(bool(found) and max(found) < plain, what, figures)


def _spec(preset: str) -> kvassay.Spec:
    return kvassay.preset(preset, **_SHAPE)


@case(42, "norms not counted, baseline counted for keys only", ONE_LAYER)
def counted(find: Findings, subject: Subject) -> None:
    """D = 64 and 128 at 3 bits, by hand: 3.125, 3.25, 4.25 bits a value.

    Expected: billed exactly; fp16 billed for keys and values.
    """
    for head_dim, keys, scale, bits in _HAND:
        spec = small(
            keys=keys, values="fp16", scale=scale, head_dim=head_dim, page_tokens=64, query_heads=2
        )
        if not find.executes(subject.backend, spec):
            continue
        values = 2 * 128 * head_dim
        with filled(subject.backend, spec, *kv(spec, 128)) as cache:
            billed, pages = cache.nbytes, len(cache.pages(0))
        find.equal(pages, 2, f"{keys} {scale}: pages of 128 tokens")
        found = 8 * (billed["codes"] + billed["scales"] - 2 * values) / values
        find.equal(round(found, 9), round(bits, 9), f"d {head_dim}, {keys}, {scale} scales: bits")
    for preset in ("fp16", "turbo"):
        spec = kvassay.preset(preset, **_SHAPE)
        if not find.executes(subject.backend, spec):
            continue
        with filled(subject.backend, spec, *kv(spec, 1000)) as cache:
            billed, held = cache.nbytes, sum(map(len, cache.pages(0)))
        tokens = 1000 - 64 * spec.layer(0).sealed(1000)
        payload = sum(billed[part] for part in BYTE_PARTS[:6])
        least = held + tokens * 2 * 2 * 2 * 64
        find.holds(payload >= least, f"{preset}: billed at least {least} bytes", payload)
    plain = kvassay.preset("fp16", **_SHAPE)
    find.equal(Costs.of(plain).fp16(1000), 1000 * 2 * 2 * 64 * 2, "fp16 baseline: keys and values")


@case(44, "a view taken before memory grew", ONE_LAYER)
def views(find: Findings, subject: Subject) -> None:
    """Outputs, pages and dump taken, then a thousand tokens, a fork, other queries, closing.

    Expected: what was handed out is unchanged; a closed handle is refused.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, window=5)
        if not find.executes(subject.backend, spec):
            continue
        k, v = kv(spec, 60)
        q = queries(spec, 3)
        cache = filled(subject.backend, spec, k, v)
        given = (cache.attend(0, q), cache.scores(0, q[0]), cache.attend(0, q[0]))
        taken, dump = cache.pages(0), cache.dump()
        copies = [array.copy() for array in given]
        fork = cache.fork()
        for _ in range(4):
            fork.append(0, *kv(spec, 300, seed=3))
        fork.attend(0, q)
        cache.append(0, *kv(spec, 300, seed=4))
        cache.attend(0, -q)
        who = f"{keys}/{values}"
        with filled(subject.backend, spec, k, v) as fresh:
            find.equal(b"".join(taken), b"".join(fresh.pages(0)), f"{who}: pages taken before")
            find.equal(dump, fresh.dump(), f"{who}: dump taken before")
        cache.close()
        fork.close()
        for number, (array, copy) in enumerate(zip(given, copies, strict=True)):
            find.equal(np.asarray(array), copy, f"{who}: array {number} handed out before")
        find.refused(partial(cache.attend, 0, q), StateError, f"{who}: an old handle")
