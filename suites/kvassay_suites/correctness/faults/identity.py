"""Faults 35 to 39: positions that move, bytes that belong elsewhere, damage that loads clean."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.backend.prefixes import PrefixStore
from kvassay.errors import IdentityError, KvassayError, PageError, UnsupportedError
from kvassay.protocol import Backend, Cache

from ...common.specs import ONE_LAYER
from ...oracle import read_dump
from .case import PAIRS, Findings, Subject, case, filled, kv, patched, queries, small

_IDENTITY: Final = {"model": "m", "tokenizer": "t", "template": "c", "adapter": "a"}
_MORE: Final = {"tokens": "0123", "runtime": "r"}
_ROPE: Final = {"base": 10000.0, "dims": 64}
#: One field changed at a time, and what the refusal must name.
_CHANGES: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"seed": 2}, "seed"),
    ({"rounds": 1}, "rounds"),
    ({"keys": "turbo:3"}, "keys"),
    ({"values": "fp16"}, "values"),
    ({"head_dim": 128}, "head_dim"),
    ({"window": 6}, "window"),
    ({"scale": "fp16"}, "scale"),
    ({"softmax_scale": 0.25}, "softmax_scale"),
    ({"rope": {**_ROPE, "base": 20000.0}}, "rope.base"),
    ({"rope": {**_ROPE, "order": "halves"}}, "rope.order"),
    ({"rope": None}, "rope"),
    *(
        ({"identity": {**_IDENTITY, **_MORE, name: "other"}}, f"identity.{name}")
        for name in (*_IDENTITY, *_MORE)
    ),
)
#: Bits between two that are flipped, each time another one of its byte; bytes between two cuts.
_FLIP_STEP, _CUT_STEP = 25, 5
#: A live page: codebook version in the flags, format version, key mode.
_CODEBOOK, _VERSION, _KEY_MODE = 7, 4, 60


def _owned(**fields: Any) -> kvassay.Spec:
    """A small spec with every field of the identity given."""
    given = {"identity": {**_IDENTITY, **_MORE}, "rope": _ROPE, "seed": 1, "window": 5}
    return small(**{**given, **fields})


@case(35, "positions shifted on quantized keys", ONE_LAYER)
def positions(find: Findings, subject: Subject) -> None:
    """A cache that slides over 150 tokens; its dump under another RoPE base, size, order, scaling.

    Expected: scores equal those of the cache that keeps everything; refused by the name of the
    field.
    """
    fields = {"sinks": 2, "window": 4, "rope": _ROPE}
    for keys, values in PAIRS:
        still, slides = (small(keys=keys, values=values, **fields, span=s) for s in (None, 30))
        if not (find.executes(subject.backend, still) and find.executes(subject.backend, slides)):
            continue
        k, v = kv(still, 150)
        q = queries(still, 1)[0]
        with (
            filled(subject.backend, still, k, v) as whole,
            filled(subject.backend, slides, k, v, [10] * 15) as part,
        ):
            all_, kept = whole.scores(0, q), part.scores(0, q)
            dump = part.dump()
        seen_ = np.isfinite(kept)
        who = f"{keys}/{values}"
        find.equal(int(seen_[0].sum()), 32, f"{who}: tokens scored after sliding")
        find.equal(kept[seen_], all_[seen_], f"{who}: their scores")
        for name, value in (("base", 1e6), ("dims", 32), ("order", "halves"), ("scaling", "x")):
            moved = small(**{**_fields(slides), "rope": {**_ROPE, name: value}})
            call = partial(subject.backend.restore, moved, dump)
            _named(find, call, f"rope.{name}", f"{who}: other RoPE ({name})")


def _fields(spec: kvassay.Spec) -> dict[str, Any]:
    return {name: value for name, value in spec.to_dict().items() if name != "layer_overrides"}


def _named(find: Findings, call: Callable[[], object], field: str, what: str) -> None:
    """Refused with IdentityError that names the field."""
    error = find.refused(call, IdentityError, what)
    find.equal(getattr(error, "field", None), field, f"{what}: the field that is named")


@case(36, "loaded under another identity, or damaged", ONE_LAYER)
def other_identity(find: Findings, subject: Subject) -> None:
    """17 single changes of seed, codec, shape, RoPE and owner; cut and spoilt at the half; other
    codebook, page and dump versions.

    Expected: refused, the field named; a cache in use unchanged.
    """
    spec = _owned()
    if not find.executes(subject.backend, spec):
        return
    with filled(subject.backend, spec, *kv(spec, 60)) as cache:
        dump = cache.dump()
        for change, field in _CHANGES:
            other = _owned(**change)
            if find.executes(subject.backend, other):
                call = partial(subject.backend.restore, other, dump)
                _named(find, call, field, f"{field} changed")
        half = len(dump) // 2
        spoilt = bytearray(dump)
        spoilt[half] ^= 0x10
        damages = {
            "cut at the half": dump[:half],
            "spoilt at the half": bytes(spoilt),
            "another codebook": patched(dump, {_CODEBOOK: b"\x02"}),
            "an older page format": patched(dump, {_VERSION: b"\x01\0"}),
            "a newer page format": patched(dump, {_VERSION: b"\x03\0"}),
            "an older dump format": patched(dump, {_VERSION: b"\0\0"}, page=None),
            "a newer dump format": patched(dump, {_VERSION: b"\x02\0"}, page=None),
        }
        for what, bytes_ in damages.items():
            find.refused(partial(subject.backend.restore, spec, bytes_), PageError, what)
        find.equal(cache.dump(), dump, "the cache that is in use")


@case(37, "identity made of the model's name only", ONE_LAYER)
def whole_identity(find: Findings, subject: Subject) -> None:
    """Each field changed alone; a prefix store whose hashes are all equal.

    Expected: all identities differ, page headers too; other tokens are a miss, equal ones are
    adopted exactly.
    """
    texts = {_owned().identity_text} | {_owned(**change).identity_text for change, _ in _CHANGES}
    find.equal(len(texts), len(_CHANGES) + 1, "different identities")
    spec = _owned()
    if not find.executes(subject.backend, spec):
        return
    headers = set()
    for change, field in _CHANGES:
        other = _owned(**change)
        if field.startswith("identity.") and field != "identity.tokens":
            with filled(subject.backend, other, *kv(other, 40)) as cache:
                headers.add(cache.pages(0)[0][8:32])
    find.equal(len(headers), 5, "page headers of five changed owners")
    store = PrefixStore(spec, hashed=lambda _: 1)
    tokens = list(range(60))
    with filled(subject.backend, spec, *kv(spec, 60)) as cache:
        find.holds(store.publish(tokens, cache), "a sequence with pages is published")
    find.holds(store.match([*tokens[:9], 99, *tokens[10:]]) is None, "other tokens are a miss")
    match = store.match([*tokens, 60])
    if find.holds(match is not None, "equal tokens are a hit") and match is not None:
        find.equal(match.tokens, 48, "tokens that are reused")
        _adopted(find, subject.backend, spec, match.donor, match.pages)
    store.close()


def _adopted(
    find: Findings, backend: Backend, spec: kvassay.Spec, donor: Cache, pages: int
) -> None:
    """Pages are taken over exactly, or the backend says that it does not share."""
    k, v = kv(spec, 60)
    more = kv(spec, 20, seed=8)
    with donor.fork() as fork:
        fork.reset()
        call = partial(fork.adopt, 0, donor, pages, *more)
        if not backend.shares:
            find.refused(call, UnsupportedError, "adopting pages of a backend that does not share")
            return
        call()
        shared = spec.sinks + pages * spec.page_tokens
        whole = [np.concatenate([x[:shared], y]) for x, y in zip((k, v), more, strict=True)]
        with filled(backend, spec, *whole) as fresh:
            find.equal(fork.dump(), fresh.dump(), "pages of a prefix and what follows")


@case(38, "bits that flip and load clean", ONE_LAYER)
def flips(find: Findings, subject: Subject) -> None:
    """Bits all over a dump flipped, lengths of it cut (a long test: every bit, every length);
    counts that declare gigabytes.

    Expected: refused; nothing allocated for what is only claimed.
    """
    spec = small(kv_heads=1, query_heads=1, keys="turbo:3.5", values="turbo:3", sinks=1)
    if not find.executes(subject.backend, spec):
        return
    with filled(subject.backend, spec, *kv(spec, 20)) as cache:
        dump = cache.dump()
    flipped = range(0, 8 * len(dump), _FLIP_STEP)
    clean = [bit for bit in flipped if _loads(subject.backend, spec, dump, bit)]
    find.equal(clean, [], f"flipped bits that load clean, of {len(flipped)}")
    cuts = range(0, len(dump), _CUT_STEP)
    whole = [n for n in cuts if _accepts(subject.backend, spec, dump[:n])]
    find.equal(whole, [], "lengths that load though the file was cut")
    lies = {
        "2^32 - 1 layers": (20, b"\xff" * 4),
        "4 GiB of identity text": (24, b"\xf0\xff\xff\xff"),
        "2^64 - 64 bytes": (8, b"\xc0" + b"\xff" * 7),
    }
    record = _records_at(dump)
    lies |= {
        "2^32 tokens": (record + 40, (2**32).to_bytes(8, "little")),
        "2^63 tokens": (record + 40, (2**63).to_bytes(8, "little")),
        "2^32 - 1 pages": (record + 52, b"\xff" * 4),
        "a section beyond the end": (record + 56, (2**40).to_bytes(8, "little")),
    }
    for what, (at, value) in lies.items():
        lie = patched(dump, {at: value}, page=None)
        tracemalloc.start()
        refused = find.refused(partial(subject.backend.restore, spec, lie), KvassayError, what)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if refused is not None:
            find.holds(peak < 1 << 20, f"{what}: nothing is allocated for it", peak)


def _records_at(dump: bytes) -> int:
    """Where the layer records begin (docs/page-format.md)."""
    text = int.from_bytes(dump[24:28], "little")
    return 32 + -(-text // 16) * 16


def _loads(backend: Backend, spec: kvassay.Spec, dump: bytes, bit: int) -> bool:
    flipped = bytearray(dump)
    flipped[bit // 8] ^= 1 << bit % 8
    return _accepts(backend, spec, bytes(flipped))


def _accepts(backend: Backend, spec: kvassay.Spec, data: bytes) -> bool:
    try:
        backend.restore(spec, data).close()
    except KvassayError:
        return False
    return True


@case(39, "an fp16 page in a quantized chain", ONE_LAYER)
def mixed_chain(find: Findings, subject: Subject) -> None:
    """Header, mode, cut and whole page of another kind, checksums right.

    Expected: refused.
    """
    spec, plain = small(), small(keys="fp16", values="fp16")
    if not (find.executes(subject.backend, spec) and find.executes(subject.backend, plain)):
        return
    with filled(subject.backend, spec, *kv(spec, 40)) as cache:
        dump, page = cache.dump(), cache.pages(0)[1]
    with filled(subject.backend, plain, *kv(plain, 40)) as cache:
        other = cache.pages(0)[1]
    find.equal(page[60:62].hex(), "1818", "modes of the quantized page")
    find.holds(page[60:62] != other[60:62], "modes of the two pages differ", page[60:62].hex())
    where = read_dump(dump).layers[0].page_offsets[1]
    cut = other[: len(page)]
    for what, bytes_ in (
        ("the header of an fp16 page", patched(dump, {0: other[:64]}, page=1)),
        ("the mode of an fp16 page", patched(dump, {_KEY_MODE: b"\0\0"}, page=1)),
        ("an fp16 page, cut to size", patched(dump, {where: cut}, page=None)),
        ("an fp16 page, whole", dump[:where] + other + dump[where + len(page) :]),
    ):
        call = partial(subject.backend.restore, spec, bytes_)
        find.refused(call, (PageError, IdentityError), what)
