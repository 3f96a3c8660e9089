"""Faults 1 to 4, 6 and 7: transforms, head dims, readers and writers, entry points."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.errors import IdentityError, KvassayError
from kvassay.protocol import Backend, Cache, FloatArray
from kvassay.registry import REFERENCE

from ...common.specs import HEAD_DIMS, MATH, ONE_LAYER
from ...oracle import LayerState, attend64, decode_cache, read_page, scores64
from .case import (
    PAIRS,
    Findings,
    Subject,
    case,
    filled,
    kv,
    patched,
    queries,
    relative,
    same,
    seen,
    small,
)

#: Relative RMS error that arithmetic on decoded codes may have: three times the stated bounds.
ARITHMETIC: Final = 0.036
#: Where a page's header keeps the two modes.
_MODES: Final = 60


@case(1, "two bases in one cache", MATH)
def two_bases(find: Findings, subject: Subject) -> None:
    """One path for one token, another for many. 17 tokens as 17, 16 + 1, seventeen singles, 3 + 5 +
    9; each codec family, head dim 128.

    Expected: equal dump, pages, scores, outputs.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, head_dim=128, query_heads=2)
        if not find.executes(subject.backend, spec):
            continue
        k, v = kv(spec, 17)
        q = queries(spec, 3)
        with filled(subject.backend, spec, k, v) as whole:
            at_once = seen(whole, q)
        for chunks in ([16, 1], [1] * 17, [3, 5, 9]):
            with filled(subject.backend, spec, k, v, chunks) as cache:
                same(find, seen(cache, q), at_once, f"{keys}/{values} as {chunks[:3]}...")


@case(2, "head dims that are no power of two", MATH)
def head_dims(find: Findings, subject: Subject) -> None:
    """Padded, wrongly normed, or not rotated at all. 80, 96, 112, 192, 320, 576, 1 and 2 rounds.

    Expected: d coordinates stored, norms within 5 %, scores equal to q . k of the decoded keys,
    the header names the transform; or refused when asked.
    """
    for d in (80, 96, 112, 192, 320, 576):
        for rounds in (1, 2):
            spec = small(head_dim=d, rounds=rounds)
            if not find.executes(subject.backend, spec):
                continue
            k, v = kv(spec, 16, seed=d)
            q = queries(spec, 1)[0]
            with filled(subject.backend, spec, k, v) as cache:
                (page,), scores, dump = cache.pages(0), cache.scores(0, q), cache.dump()
            header, what = read_page(page).header, f"head dim {d}, {rounds} rounds"
            find.equal((header["head_dim"], header["stored_dim"]), (d, d), f"{what}: stored dims")
            find.equal(header["transform"], 1 + 256 * rounds, f"{what}: transform")
            codes = read_page(page).streams["key codes"].size
            find.equal(codes, 16 * 2 * d // 2, f"{what}: bytes of key codes")
            state = decode_cache(dump)[0]
            off = max(relative(state.k, k), relative(state.v, v))
            find.holds(off < 0.13, f"{what}: decoded by the documents, 4 bits lose under 13 %", off)
            norms = np.linalg.norm(state.k, axis=-1) / np.linalg.norm(k, axis=-1)
            find.holds(np.abs(norms - 1).max() < 0.05, f"{what}: norms within 5 %", norms.max())
            exact = scores64(state.k, q, state.softmax_scale, 0, 0, 16)
            off = relative(scores, exact)
            find.holds(off < ARITHMETIC, f"{what}: scores are q . k of the decoded keys", off)


@case(3, "encoded by one, read by another", ONE_LAYER)
def cross_read(find: Findings, subject: Subject) -> None:
    """All ordered pairs with the reference.

    Expected: equal bits; within the declared bounds for backends that are not exact.
    """
    own, reference = subject.backend, kvassay.load(REFERENCE)
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, window=3, sinks=1)
        if not find.executes(own, spec):
            continue
        k, v = kv(spec, 40)
        q = queries(spec, 3)
        for writer, reader in ((own, own), (own, reference), (reference, own)):
            with filled(writer, spec, k, v) as cache:
                dump, outputs, scores = cache.dump(), cache.attend(0, q), cache.scores(0, q[0])
            with reader.restore(spec, dump) as cache:
                who = f"{keys}/{values} of {writer.name} read by {reader.name}"
                find.equal(cache.dump(), dump, f"{who}: dump")
                bound = (writer.bound or 0.0) + (reader.bound or 0.0)
                for name, found, wanted in (
                    ("outputs", cache.attend(0, q), outputs),
                    ("scores", cache.scores(0, q[0]), scores),
                ):
                    if writer.exact and reader.exact:
                        find.equal(found, wanted, f"{who}: {name}")
                    else:
                        off = relative(found, wanted)
                        find.holds(off <= bound, f"{who}: {name} within {bound}", off)


@case(4, "entry points that disagree", ONE_LAYER)
def entry_points(find: Findings, subject: Subject) -> None:
    """One query, one with an axis, n queries, scores; after the first chunk and later ones.

    Expected: each is decode-then-attend in float64 within 3.6 % RMS; the last of n queries is the
    single query, to the bit.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, window=7, sinks=2, key_centre="page")
        if not find.executes(subject.backend, spec):
            continue
        k, v = kv(spec, 90)
        q = queries(spec, 7)
        with subject.backend.prepare(spec) as cache:
            done = 0
            for chunk in (7, 35, 48):
                cache.append(0, k[done : done + chunk], v[done : done + chunk])
                done += chunk
                _agree(find, subject.backend, cache, q, f"{keys}/{values}, {done} tokens")


def _agree(find: Findings, backend: Backend, cache: Cache, q: FloatArray, who: str) -> None:
    """Every way to ask the same gives what float64 makes of the decoded cache."""
    state, length = decode_cache(cache.dump())[0], cache.length
    near = max(ARITHMETIC, 2 * (backend.bound or 0.0))
    many = cache.attend(0, q)
    find.equal(cache.attend(0, q), many, f"{who}: {len(q)} queries asked again")
    for i, row in enumerate(many):
        off = relative(row, _attend64(state, q[i], length - len(q) + 1 + i))
        find.holds(off < near, f"{who}: query {i} of {len(q)} near float64", off)
    for name, one in (
        ("alone", cache.attend(0, q[-1])),
        ("with an axis", cache.attend(0, q[-1:])[0]),
    ):
        if backend.exact:
            find.equal(one, many[-1], f"{who}: the last of {len(q)} and the same {name}")
        else:
            find.holds(relative(one, many[-1]) < near, f"{who}: the last query {name}")
    exact = scores64(state.k, q[0], state.softmax_scale, state.span, state.sinks, length)
    off = relative(cache.scores(0, q[0]), exact)
    find.holds(off < near, f"{who}: scores near float64", off)


def _attend64(state: LayerState, q: FloatArray, visible: int) -> NDArray[np.float64]:
    rest = (state.softmax_scale, state.span, state.sinks, visible)
    return attend64(state.k, state.v, q, *rest)


@case(6, "half of the value elements dropped", ONE_LAYER)
def all_elements(find: Findings, subject: Subject) -> None:
    """Rows without a zero and one-hot rows, all weight on one token, each listed head dim, one
    query and several.

    Expected: the output is the stored row.
    """
    for d in HEAD_DIMS:
        for keys, values in (("fp16", "fp16"), ("turbo:4", "turbo:3"), ("kivi:4", "kivi:4")):
            spec = small(keys=keys, values=values, head_dim=d, softmax_scale=1.0, window=8)
            if find.executes(subject.backend, spec):
                _one_token(find, subject.backend, spec)


def _one_token(find: Findings, backend: Backend, spec: kvassay.Spec) -> None:
    d = spec.head_dim
    k, _ = kv(spec, 45)
    v = np.zeros_like(k)
    v[:] = np.arange(1, d + 1)  # no element is zero: one that is was not read
    for token in range(0, 45, 2):
        v[token] = 0
        v[token, :, (7 * token) % d] = 50
    with filled(backend, spec, k, v) as cache:
        stored = decode_cache(cache.dump())[0].v
        for token in (0, 1, 14, 15, 31, 40, 43):
            q = np.repeat(4 * k[token], 2, axis=0)
            for who, row in (
                ("one query", cache.attend(0, q)),
                ("first of 2", cache.attend(0, np.stack([q, q]))[0]),
            ):
                off = np.abs(row - np.repeat(stored[token], 2, axis=0)).max()
                what = f"{spec.values} head dim {d}, token {token}, {who}: the stored row"
                find.holds(off <= 0.02 * np.abs(stored[token]).max(), what, f"off by {off}")


@case(7, "readers of keys and values swapped", ONE_LAYER)
def swapped_readers(find: Findings, subject: Subject) -> None:
    """Keys a positive ramp, values a negative one; a dump and a page with the two modes exchanged.

    Expected: positive scores, negative outputs; refused.
    """
    backend = subject.backend
    for keys, values in (*PAIRS, ("turbo:4", "turbo:3"), ("kivi:4", "kivi:2")):
        spec = small(keys=keys, values=values)
        if not find.executes(backend, spec):
            continue
        ramp = np.arange(20, dtype=np.float32)[:, None, None] + 4
        k, v = (np.broadcast_to(x, (20, 2, 64)).copy() for x in (ramp, -2 * ramp))
        ones = np.ones((4, 64), np.float32)
        with filled(backend, spec, k, v) as cache:
            state = decode_cache(cache.dump())[0]
            outputs, scores = cache.attend(0, ones), cache.scores(0, ones)
        who = f"{keys}/{values}"
        off = max(relative(state.k, k), relative(state.v, v))
        find.holds(off < 0.3, f"{who}: keys and values decode to what they were", off)
        find.holds((scores > 0).all(), f"{who}: all scores are positive", scores.min())
        find.holds((outputs < 0).all(), f"{who}: all outputs are negative", outputs.max())
    _swapped_modes(find, backend)


def _swapped_modes(find: Findings, backend: Backend) -> None:
    own, other = (
        small(keys=a, values=b) for a, b in (("turbo:4", "turbo:3"), ("turbo:3", "turbo:4"))
    )
    if not (find.executes(backend, own) and find.executes(backend, other)):
        return
    with filled(backend, other, *kv(other, 20)) as cache:
        dump = cache.dump()
    find.refused(lambda: backend.restore(own, dump), IdentityError, "a dump with codecs swapped")
    with filled(backend, own, *kv(own, 20)) as cache:
        dump = cache.dump()
    modes = bytes([0x16, 0x18])
    bad = patched(dump, {_MODES: modes})
    find.refused(lambda: backend.restore(own, bad), KvassayError, "a page with its modes swapped")
