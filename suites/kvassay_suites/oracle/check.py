"""Which dumps a reader refuses, and by which error (docs/page-format.md, "Which error")."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any, Final, NoReturn

import numpy as np

from . import page as pages
from .dump import CRC_AT, HEADER, RECORD, RECORD_FIELDS, place_layer
from .errors import OracleError, OtherCacheError

FAMILIES: Final = {"fp16": 0, "turbo": 1, "kivi": 3}
SCALES: Final = ("u8", "u8log", "fp16")
CENTRES: Final = ("none", "frozen", "page")
MOST_TOKENS: Final = 2**32 - 1
#: Names of the record's fields in the identity text where they are not those of the record here.
TEXT_NAMES: Final = {
    "heads": "kv_heads",
    "key_mode": "keys",
    "value_mode": "values",
    "scale_kind": "scale",
}
PAGE_FIELDS: Final = {
    "heads": "KV heads",
    "head_dim": "head dim",
    "tokens": "token count",
    "key_mode": "key mode",
    "value_mode": "value mode",
    "transform": "transform",
    "seed": "seed",
    "model": "model",
    "tokenizer": "tokenizer",
    "runtime": "runtime",
}
FLAGS: Final = (("scale kind", 0), ("key centring", 2), ("value centring", 4))
#: Streams by what their numbers must be.
NOT_NEGATIVE: Final = ("key scales", "key norms", "value scales", "key steps", "value steps")
SIGNED: Final = ("key codes", "value codes", "key minima", "value minima", "key mean")


def check_dump(data: bytes, identity_text: str) -> None:
    """Refuse what a cache of this identity text may not take over.

    Raises OtherCacheError with the differing field, OracleError for all else, which is damage.
    """
    spec = json.loads(identity_text)
    text_bytes = _check_header(data, spec["layers"], identity_text)
    at = HEADER.size + _up(text_bytes, 16)
    _zero(data, HEADER.size + text_bytes, at)
    end = at + spec["layers"] * RECORD.size
    for layer in range(spec["layers"]):
        expected = _record(spec, layer)
        values = RECORD.unpack_from(data, at + layer * RECORD.size)
        record = dict(zip(RECORD_FIELDS, values, strict=True))
        _check_record(record, expected)
        start = _up(end, 64)
        if record["offset"] != start:
            _damage(f"layer {layer}: section at {record['offset']}, not {start}")
        placed, stop = place_layer(record)
        if stop > len(data):
            _damage(f"layer {layer}: its section ends behind the file")
        _zero(data, end, start)
        rows_end = start
        for section in placed.sections.values():
            count = int(np.prod(section.shape))
            if not np.isfinite(np.frombuffer(data, "<f2", count, section.offset)).all():
                _damage(f"layer {layer}: a number of {section.name} is not finite")
            rows_end = section.offset + 2 * count
        _zero(data, rows_end, stop - placed.page_bytes * record["pages"])
        for number, offset in enumerate(placed.page_offsets):
            first = record["sinks"] + (record["first_page"] + number) * record["page_tokens"]
            wanted = {**pages.header_for(record), **_hashes(spec), "layer": layer}
            body = data[offset : offset + placed.page_bytes]
            _check_page(body, {**wanted, "token_start": first})
        end = stop
    _zero(data, end, len(data))
    if _up(end, 64) != len(data):
        _damage(f"sections end at {end}, the file at {len(data)}")


def _check_header(data: bytes, layers: int, identity_text: str) -> int:
    """Size of the identity text, once it is known to be there and to be this one."""
    if len(data) < HEADER.size:
        _damage(f"{len(data)} bytes, a header alone has {HEADER.size}")
    magic, version, zero, total, crc, found, text_bytes, last = HEADER.unpack_from(data)
    if total != len(data) or total % 64:
        _damage(f"{len(data)} bytes, the header says {total}")
    if magic != b"KVDM" or version != 1 or zero or last:
        _damage("magic, version or reserved fields")
    if zlib.crc32(data[:CRC_AT] + bytes(4) + data[CRC_AT + 4 :]) != crc:
        _damage("the CRC does not match")
    if HEADER.size + _up(text_bytes, 16) > total:
        _damage("the identity text ends behind the file")
    _check_text(data[HEADER.size : HEADER.size + text_bytes], identity_text)
    if found != layers:
        _damage(f"{found} layers, its identity has {layers}")
    if HEADER.size + _up(text_bytes, 16) + layers * RECORD.size > total:
        _damage("the layer records end behind the file")
    return int(text_bytes)


def _check_text(found: bytes, expected: str) -> None:
    try:
        other = json.loads(found.decode())
    except (ValueError, RecursionError):
        _damage("the identity text is no JSON")
    if not isinstance(other, dict):
        _damage("the identity text is no JSON object")
    field = _first_difference(json.loads(expected), other)
    if field is not None:
        raise OtherCacheError(f"{field} differs in the identity text", field)
    if found != expected.encode():
        _damage("the identity text is not canonical")


def _first_difference(own: dict[str, Any], other: dict[str, Any]) -> str | None:
    for name in sorted({*own, *other}):
        left, right = own.get(name, ...), other.get(name, ...)
        if left is right or (left == right and repr(left) == repr(right)):
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            inner = _first_difference(left, right)
            if inner is None:  # the same in another order
                continue
            return f"{name}.{inner}"
        return name
    return None


def _record(spec: dict[str, Any], layer: int) -> dict[str, Any]:
    """The fields of a layer's record that repeat the identity text."""
    override = spec["layer_overrides"].get(str(layer), {})
    own = {**spec, **override}
    for stream, centre in (("keys", "key_centre"), ("values", "value_centre")):
        if override.get(stream) == "fp16" and centre not in override:
            own[centre] = "none"
    return {
        "heads": own["kv_heads"],
        "query_heads": own["query_heads"],
        "head_dim": own["head_dim"],
        "page_tokens": own["page_tokens"],
        "key_mode": _mode(own["keys"]),
        "value_mode": _mode(own["values"]),
        "key_centre": CENTRES.index(own["key_centre"]),
        "value_centre": CENTRES.index(own["value_centre"]),
        "scale_kind": SCALES.index(own["scale"]),
        "rounds": own["rounds"],
        "window": own["window"],
        "sinks": own["sinks"],
        "span": own["span"] or 0,
        "softmax_scale": own["softmax_scale"],
        "seed": own["seed"],
    }


def _mode(name: str) -> int:
    family, _, rate = name.removesuffix("+qjl").partition(":")
    return 16 * (FAMILIES[family] + name.endswith("+qjl")) + int(2 * float(rate or 0))


def _hashes(spec: dict[str, Any]) -> dict[str, int]:
    """Model, tokenizer and runtime hash of the identity text's `identity`."""
    who = spec["identity"] or {}
    parts = {
        "model": ("model", "adapter"),
        "tokenizer": ("tokenizer", "template"),
        "runtime": ("runtime",),
    }
    out = {}
    for name, fields in parts.items():
        texts = [who.get(field, "") for field in fields]
        digest = hashlib.sha256("\0".join(texts).encode()).digest()
        out[name] = int.from_bytes(digest[:8], "little") if any(texts) else 0
    return out


def _check_record(record: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if record[name] != value:
            field = TEXT_NAMES.get(name, name)
            raise OtherCacheError(f"{field}: {record[name]} in a layer record", field)
    length, page_tokens = record["length"], record["page_tokens"]
    sealed = max(0, length - record["sinks"] - record["window"]) // page_tokens
    reached = 0
    if record["span"]:
        reached = max(0, length - record["span"] - record["sinks"]) // page_tokens
    live = min(reached, sealed)
    if record["zero"] or length > MOST_TOKENS:
        _damage(f"a layer record of {length} tokens, reserved {record['zero']}")
    if (record["first_page"], record["pages"]) != (live, sealed - live):
        _damage(f"a layer record whose pages do not fit its {length} tokens")


def _check_page(body: bytes, wanted: dict[str, Any]) -> None:
    found = pages.header_of(body)
    if found["magic"] != b"KVPG" or found["version"] != 2 or found["reserved"]:
        _damage("page: magic, version or reserved field")
    if found["flags"] >> 8 & 15 != 1 or found["flags"] & 0xF0C0:
        _damage("page: codebook version or unknown flags")
    for name, field in PAGE_FIELDS.items():
        if found[name] != wanted[name]:
            raise OtherCacheError(f"page: {field} is {found[name]}, not {wanted[name]}", field)
    for field, shift in FLAGS:
        if (found["flags"] ^ wanted["flags"]) >> shift & 3:
            raise OtherCacheError(f"page: {field} differs", field)
    for name in ("stored_dim", "layer", "token_start"):
        if found[name] != wanted[name]:
            _damage(f"page: {name} is {found[name]}, not {wanted[name]}")
    page = pages.read_page(body)
    end = pages.HEADER.size
    for stream in page.streams.values():
        _zero(body, end, stream.offset)
        end = stream.offset + stream.size
        _check_numbers(page, stream)
    _zero(body, end, len(body))


def _check_numbers(page: pages.Page, stream: pages.Stream) -> None:
    if stream.dtype not in ("<f2", "<f4"):
        return
    raw = page.raw(stream.name)
    bad = ~np.isfinite(raw)
    if stream.name not in SIGNED:
        bad |= np.signbit(raw)
    if stream.dtype == "<f4":
        bad |= (raw != 0) & (raw < np.float32(2.0**-126))
    if bad.any():
        _damage(f"page: a number of {stream.name}")


def _zero(data: bytes, start: int, end: int) -> None:
    if any(data[start:end]):
        _damage(f"bytes {start} .. {end - 1} must be 0")


def _damage(what: str) -> NoReturn:
    raise OracleError(f"dump: {what}")


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
