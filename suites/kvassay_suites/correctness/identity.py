"""Dumps of another identity, and damaged dumps: refused by name, before anything is made."""

from __future__ import annotations

import math
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

import kvassay
from kvassay.errors import IdentityError, KvassayError, PageError, SpecError
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common.inputs import gaussian
from ..common.offered import usual_pair
from ..common.specs import ONE_LAYER, make_spec, record
from ..oracle import put_number, put_token, read_dump

BASE: Final[dict[str, Any]] = {
    "layers": 2,
    "kv_heads": 2,
    "query_heads": 4,
    "head_dim": 64,
    "keys": "turbo:3.5",
    "values": "turbo:3",
    "window": 16,
    "sinks": 2,
    "span": 300,
    "page_tokens": 32,
    "key_centre": "page",
    "value_centre": "frozen",
    "scale": "u8",
    "rounds": 2,
    "seed": 5,
    "rope": {"base": 10000.0, "dims": 64},
    "identity": {
        "model": "m",
        "tokenizer": "t",
        "template": "c",
        "adapter": "a",
        "tokens": "0123",
        "runtime": "r",
    },
}
#: One field changed at a time. The field of the refusal is this name or one inside it.
CHANGES: Final[tuple[tuple[str, Any], ...]] = (
    ("layers", 3),
    ("kv_heads", 4),
    ("query_heads", 8),
    ("head_dim", 128),
    ("keys", "turbo:4"),
    ("keys", "turbo:3.5+qjl"),
    ("values", "kivi:4"),
    ("window", 17),
    ("sinks", 3),
    ("span", None),
    ("page_tokens", 16),
    ("key_centre", "frozen"),
    ("value_centre", "none"),
    ("scale", "fp16"),
    ("rounds", 1),
    ("seed", 6),
    ("softmax_scale", 0.25),
    ("layer_overrides", {1: {"keys": "turbo:4"}}),
    ("rope", {"base": 20000.0, "dims": 64}),
    ("rope", {"base": 10000.0, "dims": 64, "order": "halves"}),
    ("rope", None),
    *(
        ("identity", {**BASE["identity"], name: "other"})
        for name in ("model", "tokenizer", "template", "adapter", "tokens", "runtime")
    ),
    ("identity", None),
)
TOKENS: Final = 100
FLIPS: Final = 64
#: Bytes of a page's header; codes follow (docs/page-format.md).
PAGE_HEADER: Final = 64


def _dump(backend: Backend, spec: kvassay.Spec) -> bytes:
    with backend.prepare(spec) as cache:
        for layer in range(spec.layers):
            shape = (TOKENS, spec.kv_heads, spec.head_dim)
            cache.append(layer, gaussian(51 + layer, *shape), gaussian(61 + layer, *shape))
        return cache.dump()


def measure(backend: str, variant: str) -> list[Record]:
    """How many dumps that must be refused were accepted, or refused by another name."""
    loaded = kvassay.load(backend, variant)
    base = _base(loaded)
    spec = kvassay.Spec.from_dict(base)
    dump = _dump(loaded, spec)
    with loaded.restore(spec, dump) as cache:
        own = cache.dump() == dump
    wrong = [] if own else ["its own dump is not restored"]
    tried = 1
    for field, value, other in _others(loaded, base):
        tried += 1
        said = _refusal(loaded, other, dump, IdentityError)
        if said is None or not (said == field or said.startswith((f"{field}.", f"{field}["))):
            wrong.append(f"{field} = {value!r}: {said or 'accepted'}")
    for name, damaged in _damaged(dump):
        tried += 1
        said = _refusal(loaded, spec, damaged, PageError)
        if said is None or said.startswith("!"):
            wrong.append(f"{name}: {said or 'accepted'}")
    return [
        record(
            "correctness.identity_accepted",
            ONE_LAYER,
            backend,
            variant,
            len(wrong),
            "identities",
            tried,
            detail={"wrong": wrong},
        )
    ]


def _base(backend: Backend) -> dict[str, Any]:
    """BASE, with other codecs where the backend does not execute those."""
    if backend.supports(kvassay.Spec.from_dict(BASE)):
        return BASE
    keys, values = usual_pair(backend)
    return make_spec(**{**BASE, "keys": keys, "values": values}).to_dict()


def _others(backend: Backend, base: dict[str, Any]) -> Iterator[tuple[str, Any, kvassay.Spec]]:
    """The changed field, its value and the spec, of the changes that the backend executes."""
    for field, value in CHANGES:
        try:
            other = kvassay.Spec.from_dict({**base, field: value})
        except SpecError:  # centring that has no meaning for these codecs
            continue
        if other != kvassay.Spec.from_dict(base) and backend.supports(other):
            yield field, value, other


def _refusal(
    backend: Backend, spec: kvassay.Spec, dump: bytes, expected: type[KvassayError]
) -> str | None:
    """The field a restore was refused for ("" without one), "!..." by a wrong error, else None."""
    try:
        backend.restore(spec, dump).close()
    except expected as error:
        return str(getattr(error, "field", ""))
    except KvassayError as error:
        return f"!{type(error).__name__}: {error}"
    return None


def _damaged(dump: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut, grown and flipped dumps, and one that declares more pages than there is memory."""
    size = len(dump)
    for length in (0, 3, 31, 32, size // 2, size - 64, size - 1):
        yield f"cut to {length} bytes", dump[:length]
    yield "64 bytes longer", dump + bytes(64)
    draw = random.Random(1)
    for _ in range(FLIPS):
        at = draw.randrange(8 * size)
        changed = bytearray(dump)
        changed[at // 8] ^= 1 << at % 8
        yield f"bit {at % 8} of byte {at // 8} flipped", bytes(changed)
    yield from _resealed(dump)
    yield "2^32 - 1 layers declared", _patched(dump, 20, struct.pack("<I", 2**32 - 1))
    yield "4 GiB of identity text declared", _patched(dump, 24, struct.pack("<I", 2**32 - 16))
    yield "version 9", _patched(dump, 4, struct.pack("<H", 9))


def _resealed(dump: bytes) -> Iterator[tuple[str, bytes]]:
    """Numbers that no page stores, and a damaged page, in dumps whose own checksum is right."""
    for stream, value in (
        ("key maxima", math.nan),
        ("key maxima", -1.0),
        ("value maxima", math.inf),
        ("value maxima", 1e-40),
        ("key mean", math.nan),
    ):
        if stream in read_dump(dump).page(0, 0).streams:
            yield f"{value} among the {stream}", put_number(dump, 0, 0, stream, value)
    yield "NaN among the residual keys", put_token(dump, 0, "residual keys", math.nan)
    at = read_dump(dump).layers[1].page_offsets[0] + PAGE_HEADER
    yield "a code changed under its page's checksum", _patched(dump, at, bytes([dump[at] ^ 1]))


def _patched(dump: bytes, at: int, data: bytes) -> bytes:
    """The dump with some bytes replaced and its checksum repaired."""
    out = bytearray(dump)
    out[at : at + len(data)] = data
    out[16:20] = bytes(4)
    out[16:20] = struct.pack("<I", zlib.crc32(out))
    return bytes(out)
