"""Reads a page into float64 (docs/page-format.md, docs/numeric-contract.md sections 3 to 6)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import OracleError
from .rotation import KEYS, SIGNS, VALUES, gain_exponent, rotation
from .tiles import Spans, head_bytes, key_addresses, spans_of, unpack, value_addresses

Float64 = NDArray[np.float64]
HEADER: Final = struct.Struct("<4sHHQQQQIIHHHHHHBBH")
FIELDS: Final = (
    *("magic", "version", "flags", "model", "tokenizer", "runtime", "seed", "token_start", "crc"),
    *("layer", "tokens", "heads", "head_dim", "stored_dim", "transform", "key_mode", "value_mode"),
    "reserved",
)
CRC_AT: Final = 44
FP16, TURBO, QJL, KIVI = 0, 1, 2, 3
#: Integer centroids, positive half, by half bits of the rate: one tuple for each span.
CENTROIDS: Final = {
    4: ((3, 10),),
    5: ((9, 30), (5, 15, 27, 43)),
    6: ((7, 22, 39, 62),),
    7: ((4, 12, 21, 34), (2, 6, 10, 15, 20, 26, 33, 43)),
    8: ((3, 9, 15, 21, 28, 36, 46, 61),),
}


@dataclass(frozen=True)
class Stream:
    """One stream of a page: entries of `dtype` and shape (heads, ...), or tiled codes."""

    name: str
    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


@dataclass(frozen=True)
class Page:
    """A page's header fields and streams; decoded arrays on demand, tokens first."""

    data: bytes
    header: dict[str, Any]
    streams: dict[str, Stream]
    #: Rounds of the transform come from the header; 0 where neither stream is turbo.
    rounds: int

    @property
    def tokens(self) -> int:
        """Tokens in the page."""
        return int(self.header["tokens"])

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return int(self.header["head_dim"])

    @property
    def heads(self) -> int:
        """KV heads."""
        return int(self.header["heads"])

    def raw(self, name: str) -> NDArray[Any]:
        """A stream as it is stored: entries, or for codes (heads, tokens, d) integers."""
        stream = self.streams[name]
        body = self.data[stream.offset : stream.offset + stream.size]
        if stream.dtype != "tiles":
            return np.frombuffer(body, stream.dtype).reshape(stream.shape)
        addresses = self.addresses(name)
        each = stream.size // self.heads
        heads = [unpack(body[h * each : (h + 1) * each], addresses) for h in range(self.heads)]
        return np.stack(heads)

    def addresses(self, name: str) -> tuple[NDArray[np.int64], ...]:
        """Bit addresses of a tiled stream inside one head."""
        spans = _spans(self.header, name)
        where = value_addresses if name == "value codes" else key_addresses
        return where(spans, self.tokens)

    def real(self, name: str) -> Float64:
        """A stream of numbers as float64."""
        return self.raw(name).astype(np.float64)

    def scales(self, codes: str, maxima: str) -> Float64:
        """What a reader gets back for stored scales: (heads, tokens)."""
        kind = self.header["flags"] & 3
        if kind == 2:
            return self.real(codes)
        u = self.real(codes)
        largest = self.real(maxima)[:, None]
        if kind == 0:
            return u * largest / 255.0
        ratio: Float64 = np.where(u > 0, 2.0 ** (-(255.0 - u) / 16.0), 0.0)
        return ratio * largest

    def centroids(self, name: str) -> Float64:
        """Centroids of turbo codes (heads, tokens, d)."""
        mode = self.header["key_mode" if name == "key codes" else "value_mode"]
        out = self.raw(name).astype(np.float64)
        spans = spans_of(mode & 15, self.head_dim)
        for (first, channels, _), half in zip(spans, CENTROIDS[mode & 15], strict=True):
            table = np.array([*(-c for c in reversed(half)), *half], np.float64)
            part = out[..., first : first + channels]
            out[..., first : first + channels] = table[part.astype(np.int64)]
        return out

    def _turn_back(self, y: Float64, stream: int) -> Float64:
        """Rows y of the transformed space back to channels; gains are the caller's."""
        matrix = rotation(self.head_dim, self.header["seed"], stream, self.rounds)
        out: Float64 = y @ matrix
        return out

    @cached_property
    def keys(self) -> Float64:
        """Decoded keys (tokens, heads, d), the page mean added, a frozen one not."""
        family = self.header["key_mode"] >> 4
        if family == FP16:
            out = self.real("key codes")
        elif family == KIVI:
            out = self._kivi_keys()
        else:
            out = self._turbo("key", KEYS)
            if family == QJL:
                out = out + self._sign_part()
        if "key mean" in self.streams:
            out = out + self.real("key mean")[:, None, :]
        return out.transpose(1, 0, 2)

    @cached_property
    def values(self) -> Float64:
        """Decoded values (tokens, heads, d); the frozen mean is not added."""
        family = self.header["value_mode"] >> 4
        if family == FP16:
            out = self.real("value codes")
        elif family == KIVI:
            out = self._kivi_values()
        else:
            out = self._turbo("value", VALUES)
        return out.transpose(1, 0, 2)

    def _turbo(self, which: str, stream: int) -> Float64:
        exponent = gain_exponent(self.head_dim, self.rounds)
        gain = 2.0 ** (exponent / 2 - exponent // 2)
        scale = self.scales(f"{which} scales", f"{which} maxima")[..., None]
        return np.asarray(self._turn_back(self.centroids(f"{which} codes") * scale, stream) * gain)

    def _sign_part(self) -> Float64:
        """The residual of +qjl: norm * sqrt(pi/2 / d) * U' U2' sign."""
        exponent = gain_exponent(self.head_dim, self.rounds)
        gain = 2.0 ** (-(-exponent // 2) - exponent / 2)
        norm = self.scales("key norms", "norm maxima")[..., None]
        signs = 2.0 * self.raw("key signs") - 1.0
        residual = self._turn_back(signs * norm * np.sqrt(np.pi / 2 / self.head_dim), SIGNS) * gain
        return self._turn_back(residual, KEYS)

    def _kivi_keys(self) -> Float64:
        group = np.arange(self.tokens) // 32
        step = self.real("key steps")[:, group, :]
        return self.real("key minima")[:, group, :] + self.raw("key codes") * step

    def _kivi_values(self) -> Float64:
        group = np.arange(self.head_dim) // 32
        step = self.real("value steps")[:, group, :].transpose(0, 2, 1)
        low = self.real("value minima")[:, group, :].transpose(0, 2, 1)
        return low + self.raw("value codes") * step


def _spans(header: dict[str, Any], name: str) -> Spans:
    if name == "key signs":
        return ((0, header["head_dim"], 1),)
    mode = header["key_mode" if name == "key codes" else "value_mode"]
    return spans_of(mode & 15, header["head_dim"])


def _layout(header: dict[str, Any]) -> tuple[dict[str, Stream], int]:
    heads, tokens, d = header["heads"], header["tokens"], header["head_dim"]
    key, value = header["key_mode"] >> 4, header["value_mode"] >> 4
    kind = header["flags"] & 3
    page_mean = (header["flags"] >> 2) & 3 == 2
    scale = "<f2" if kind == 2 else "|u1"
    maxima = kind != 2
    blocks, groups = -(-tokens // 32), -(-d // 32)
    turbo_key, turbo_value, qjl = key in (TURBO, QJL), value == TURBO, key == QJL
    wanted: list[tuple[str, bool, str, tuple[int, ...]]] = [
        ("key codes", True, "tiles" if key else "<f2", (heads, tokens, d)),
        ("value codes", True, "tiles" if value else "<f2", (heads, tokens, d)),
        ("key signs", qjl, "tiles", (heads, tokens, d)),
        ("key scales", turbo_key, scale, (heads, tokens)),
        ("key norms", qjl, scale, (heads, tokens)),
        ("value scales", turbo_value, scale, (heads, tokens)),
        ("key steps", key == KIVI, "<f2", (heads, blocks, d)),
        ("key minima", key == KIVI, "<f2", (heads, blocks, d)),
        ("value steps", value == KIVI, "<f2", (heads, groups, tokens)),
        ("value minima", value == KIVI, "<f2", (heads, groups, tokens)),
        ("key mean", page_mean, "<f2", (heads, d)),
        ("key maxima", turbo_key and maxima, "<f4", (heads,)),
        ("norm maxima", qjl and maxima, "<f4", (heads,)),
        ("value maxima", turbo_value and maxima, "<f4", (heads,)),
    ]
    streams: dict[str, Stream] = {}
    at = HEADER.size
    for name, present, dtype, shape in wanted:
        if not present:
            continue
        at = _up(at, 16)
        if dtype == "tiles":
            size = heads * head_bytes(_spans(header, name), tokens)
        else:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        streams[name] = Stream(name, at, size, dtype, shape)
        at += size
    return streams, _up(at, 64)


def header_of(data: bytes) -> dict[str, Any]:
    """The header fields by name."""
    return dict(zip(FIELDS, HEADER.unpack_from(data), strict=True))


def header_for(record: dict[str, Any]) -> dict[str, Any]:
    """What a layer's record in a dump says of the headers of its pages."""
    turbo = any(record[name] >> 4 in (TURBO, QJL) for name in ("key_mode", "value_mode"))
    centres = record["key_centre"] << 2 | record["value_centre"] << 4
    return {
        "flags": (record["scale_kind"] if turbo else 0) | centres | 1 << 8,
        "seed": record["seed"] if turbo else 0,
        "transform": 1 + 256 * record["rounds"] if turbo else 0,
        "tokens": record["page_tokens"],
        "heads": record["heads"],
        "head_dim": record["head_dim"],
        "stored_dim": record["head_dim"],
        "key_mode": record["key_mode"],
        "value_mode": record["value_mode"],
    }


def page_bytes(header: dict[str, Any]) -> int:
    """Size of a page with this header."""
    return _layout(header)[1]


def as_laid_out(data: bytes, header: dict[str, Any]) -> Page:
    """The bytes read by the layout of `header`, unchecked: to find where two pages differ."""
    return Page(data, header, _layout(header)[0], header["transform"] >> 8)


def read_page(data: bytes) -> Page:
    """A page from its bytes; raises OracleError naming the first fault."""
    if len(data) < HEADER.size:
        raise OracleError(f"page: {len(data)} bytes, a header alone has {HEADER.size}")
    header = header_of(data)
    if header["magic"] != b"KVPG" or header["version"] != 2:
        raise OracleError(f"page: magic {header['magic']!r} version {header['version']}")
    if header["stored_dim"] != header["head_dim"] or (header["flags"] >> 8) & 15 != 1:
        raise OracleError("page: stored dim or codebook version is not the documented one")
    streams, size = _layout(header)
    if size != len(data):
        raise OracleError(f"page: {len(data)} bytes, the header's layout has {size}")
    if zlib.crc32(data[:CRC_AT] + bytes(4) + data[CRC_AT + 4 :]) != header["crc"]:
        raise OracleError("page: the CRC does not match")
    return Page(data, header, streams, header["transform"] >> 8)
