"""Fault 40: a codec that is named but does not run."""

from __future__ import annotations

from typing import Final

import kvassay
from kvassay.protocol import Backend

from ...common.specs import CODEC_PAIRS, ONE_LAYER
from ...oracle import flip_code
from .case import Findings, Subject, case, filled, kv, queries, small

#: Bit of an fp16 number that a flip changes: the highest of its mantissa.
_MANTISSA: Final = 9


@case(40, "codec named but not running", ONE_LAYER)
def codec_runs(find: Findings, subject: Subject) -> None:
    """Every codec; one stored bit flipped in each page and head.

    Expected: another output; pages encoded and scanned; fewer bytes and other outputs than fp16.
    """
    backend = subject.backend
    plain = _plain(backend, find)
    for keys, values in CODEC_PAIRS:
        spec = small(keys=keys, values=values, page_tokens=64)
        if not find.executes(backend, spec):
            continue
        who = f"{keys}/{values}"
        q = queries(spec, 1)[0]
        with filled(backend, spec, *kv(spec, 128)) as cache:
            dump, output = cache.dump(), cache.attend(0, q).tobytes()
            counters, held = cache.counters, sum(cache.nbytes[p] for p in ("codes", "scales"))
        find.equal(counters.pages_encoded, 2, f"{who}: pages encoded")
        find.holds(counters.pages_scanned > 0, f"{who}: pages scanned", counters.pages_scanned)
        find.equal(counters.variants_ran, (subject.variant,), f"{who}: variants that ran")
        if (keys, values) != ("fp16", "fp16"):
            fp16 = 2 * 2 * 128 * spec.kv_heads * spec.head_dim
            find.holds(held < 0.75 * fp16, f"{who}: holds less than fp16's {fp16} bytes", held)
            if plain is not None:
                find.holds(output != plain, f"{who}: other output than fp16's")
        for stream, codec in (("key codes", keys), ("value codes", values)):
            _flips(
                find, backend, spec, dump, output, stream, _MANTISSA if codec == "fp16" else None
            )
        if keys.endswith("+qjl"):
            _flips(find, backend, spec, dump, output, "key signs", None)


def _plain(backend: Backend, find: Findings) -> bytes | None:
    """The output of the same tokens held as fp16."""
    spec = small(keys="fp16", values="fp16", page_tokens=64)
    if not find.executes(backend, spec):
        return None
    with filled(backend, spec, *kv(spec, 128)) as cache:
        return cache.attend(0, queries(spec, 1)[0]).tobytes()


def _flips(
    find: Findings,
    backend: Backend,
    spec: kvassay.Spec,
    dump: bytes,
    output: bytes,
    stream: str,
    bit: int | None,
) -> None:
    """One bit in each page and head: the attention output must not stay the same."""
    layer = spec.layer(0)
    codec = layer.values if stream == "value codes" else layer.keys
    top = 0 if stream == "key signs" else int(codec.bits) - 1
    for page in range(2):
        for head in range(spec.kv_heads):
            token, channel = 7 + 16 * page + 5 * head, 31 * page + 9 * head
            where = (head, token, channel, top if bit is None else bit)
            changed = flip_code(dump, 0, page, stream, *where)
            with backend.restore(spec, changed) as cache:
                found = cache.attend(0, queries(spec, 1)[0]).tobytes()
            what = f"{spec.keys}/{spec.values}: page {page} head {head}, a flip in {stream}"
            find.holds(found != output, f"{what} changes the output")
