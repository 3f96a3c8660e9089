"""Reads a dump into float64 (docs/page-format.md, section "Dump format")."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import OracleError
from .page import FP16, Page, header_for, page_bytes, read_page

Float64 = NDArray[np.float64]
HEADER: Final = struct.Struct("<4sHHQIIII")
RECORD: Final = struct.Struct("<HHHHBBBBBBHIIIfQQIIQ")
RECORD_FIELDS: Final = (
    *("heads", "query_heads", "head_dim", "page_tokens", "key_mode", "value_mode", "key_centre"),
    *("value_centre", "scale_kind", "rounds", "zero", "window", "sinks", "span", "softmax_scale"),
    *("seed", "length", "first_page", "pages", "offset"),
)
CRC_AT: Final = 16
FROZEN: Final = 1
RETIRED, IN_FP16 = -2, -1


@dataclass(frozen=True)
class Section:
    """fp16 rows of a layer: where they start in the dump and what shape they have."""

    name: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LayerDump:
    """One layer of a dump: record fields, fp16 sections and the offsets of its live pages."""

    record: dict[str, Any]
    sections: dict[str, Section]
    page_offsets: tuple[int, ...]
    page_bytes: int


@dataclass(frozen=True)
class Dump:
    """A dump's parts."""

    data: bytes
    identity: dict[str, Any]
    layers: tuple[LayerDump, ...]

    def rows(self, layer: int, name: str) -> Float64 | None:
        """An fp16 section as float64, None where it is absent."""
        section = self.layers[layer].sections.get(name)
        if section is None:
            return None
        count = int(np.prod(section.shape))
        flat = np.frombuffer(self.data, "<f2", count, section.offset)
        return flat.reshape(section.shape).astype(np.float64)

    def page(self, layer: int, index: int) -> Page:
        """Live page number `index` of a layer."""
        found = self.layers[layer]
        start = found.page_offsets[index]
        return read_page(self.data[start : start + found.page_bytes])


@dataclass(frozen=True)
class LayerState:
    """What a layer holds, decoded. `k`, `v` (tokens, heads, d); NaN rows where a page is retired.

    `place[t]` is the number of the page that token t is in (counted from the first ever sealed),
    IN_FP16 or RETIRED.
    """

    k: Float64
    v: Float64
    place: NDArray[np.int64]
    softmax_scale: float
    span: int
    sinks: int

    @property
    def live(self) -> NDArray[np.bool_]:
        """Tokens that are held."""
        return np.not_equal(self.place, RETIRED)


CacheState = tuple[LayerState, ...]


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def read_dump(data: bytes) -> Dump:
    """A dump from its bytes; raises OracleError naming the first fault."""
    if len(data) < HEADER.size:
        raise OracleError(f"dump: {len(data)} bytes, a header alone has {HEADER.size}")
    magic, version, _, total, crc, layers, identity_bytes, _ = HEADER.unpack_from(data)
    if magic != b"KVDM" or version != 1:
        raise OracleError(f"dump: magic {magic!r} version {version}")
    if total != len(data) or total % 64:
        raise OracleError(f"dump: {len(data)} bytes, the header says {total}")
    if zlib.crc32(data[:CRC_AT] + bytes(4) + data[CRC_AT + 4 :]) != crc:
        raise OracleError("dump: the CRC does not match")
    identity = json.loads(data[HEADER.size : HEADER.size + identity_bytes])
    at = HEADER.size + _up(identity_bytes, 16)
    records = [
        dict(zip(RECORD_FIELDS, RECORD.unpack_from(data, at + i * RECORD.size), strict=True))
        for i in range(layers)
    ]
    end = at + layers * RECORD.size
    out = []
    for record in records:
        if record["offset"] != _up(end, 64):
            raise OracleError(f"dump: a section at {record['offset']}, expected {_up(end, 64)}")
        layer, end = place_layer(record)
        out.append(layer)
    if _up(end, 64) != total:
        raise OracleError(f"dump: sections end at {end}, the file at {total}")
    return Dump(data, identity, tuple(out))


def place_layer(record: dict[str, Any]) -> tuple[LayerDump, int]:
    """Where the parts of a layer lie, and where its section ends, from its record alone."""
    heads, d, p = record["heads"], record["head_dim"], record["page_tokens"]
    length = record["length"]
    sealed = max(0, (length - record["sinks"] - record["window"]) // p)
    if record["first_page"] + record["pages"] != sealed:
        raise OracleError(
            f"dump: {record['first_page']} retired and {record['pages']} live pages, but {length} "
            f"tokens seal {sealed}"
        )
    sinks = min(length, record["sinks"])
    rest = length - sinks - p * sealed
    sections: dict[str, Section] = {}
    at = record["offset"]
    for name, present, shape in (
        ("key mean", record["key_centre"] == FROZEN and sealed > 0, (heads, d)),
        ("value mean", record["value_centre"] == FROZEN and sealed > 0, (heads, d)),
        ("sink keys", True, (heads, sinks, d)),
        ("sink values", True, (heads, sinks, d)),
        ("residual keys", True, (heads, rest, d)),
        ("residual values", True, (heads, rest, d)),
    ):
        if present:
            sections[name] = Section(name, at, shape)
            at += 2 * int(np.prod(shape))
    at = _up(at, 64)
    size = page_bytes(header_for(record)) if record["pages"] else 0
    offsets = tuple(at + i * size for i in range(record["pages"]))
    return LayerDump(record, sections, offsets, size), at + size * record["pages"]


def decode_cache(data: bytes) -> CacheState:
    """Every layer of a dump in float64."""
    dump = read_dump(data)
    return tuple(_decode_layer(dump, index) for index in range(len(dump.layers)))


def _decode_layer(dump: Dump, index: int) -> LayerState:
    record = dump.layers[index].record
    length, heads, d, p = (record[n] for n in ("length", "heads", "head_dim", "page_tokens"))
    k, v = np.full((2, length, heads, d), np.nan)
    place = np.full(length, RETIRED)
    for out, name in ((k, "keys"), (v, "values")):
        first, last = dump.rows(index, f"sink {name}"), dump.rows(index, f"residual {name}")
        assert first is not None
        assert last is not None
        for rows, part in (
            (first, slice(0, first.shape[1])),
            (last, slice(length - last.shape[1], length)),
        ):
            out[part] = rows.transpose(1, 0, 2)
            place[part] = IN_FP16
    key_mean, value_mean = dump.rows(index, "key mean"), dump.rows(index, "value mean")
    for number in range(record["pages"]):
        page = dump.page(index, number)
        start = page.header["token_start"]
        whole = slice(start, start + p)
        if start != record["sinks"] + (record["first_page"] + number) * p:
            raise OracleError(f"dump: live page {number} starts at token {start}")
        k[whole] = page.keys + (0.0 if key_mean is None else key_mean)
        v[whole] = page.values + (0.0 if value_mean is None else value_mean)
        place[whole] = record["first_page"] + number
    return LayerState(
        k, v, place, float(record["softmax_scale"]), int(record["span"]), int(record["sinks"])
    )


def is_fp16(mode: int) -> bool:
    """Whether a mode byte names an fp16 stream."""
    return mode >> 4 == FP16
