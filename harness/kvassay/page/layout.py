"""The page format: header, layout of the body, codes, CRC (docs/page-format.md).

A description that backends, suites and tests share. It says where numbers are, never what they
mean.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import PageError
from ..spec import Identity, LayerSpec
from ..streams import Codec
from .tiles import pack_keys, pack_values, unpack_keys, unpack_values

MAGIC: Final = b"KVPG"
VERSION: Final = 2
CODEBOOK_VERSION: Final = 1
HEADER_SIZE: Final = 64
KIVI_GROUP: Final = 32
#: Numbers of the header for the kinds that a spec spells as words.
SCALE_NUMBER: Final = {"u8": 0, "u8log": 1, "fp16": 2}
KEY_CENTRE_NUMBER: Final = {"none": 0, "frozen": 1, "page": 2}
VALUE_CENTRE_NUMBER: Final = {"none": 0, "frozen": 1}

_HEADER: Final = struct.Struct("<4sHHQQQQIIHHHHHHBBH")
_CRC_AT: Final = 44


class Header(NamedTuple):
    """The 64 bytes that open a page, field by field as they are stored."""

    magic: bytes
    version: int
    flags: int
    model: int
    tokenizer: int
    runtime: int
    seed: int
    token_start: int
    crc: int
    layer: int
    page_tokens: int
    kv_heads: int
    head_dim: int
    stored_dim: int
    transform: int
    key_mode: int
    value_mode: int
    reserved: int

    @classmethod
    def of(
        cls, spec: LayerSpec, layer: int, token_start: int, identity: Identity | None = None
    ) -> Header:
        """The header of a page of this layer, its CRC 0; what only turbo needs is 0 elsewhere."""
        rotated = spec.rotated
        who = identity or Identity()
        return cls(
            magic=MAGIC,
            version=VERSION,
            flags=(
                (SCALE_NUMBER[spec.scale] if rotated else 0)
                | KEY_CENTRE_NUMBER[spec.key_centre] << 2
                | VALUE_CENTRE_NUMBER[spec.value_centre] << 4
                | CODEBOOK_VERSION << 8
            ),
            model=who.model_hash,
            tokenizer=who.tokenizer_hash,
            runtime=who.runtime_hash,
            seed=spec.seed if rotated else 0,
            token_start=token_start,
            crc=0,
            layer=layer,
            page_tokens=spec.page_tokens,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            stored_dim=spec.head_dim,
            transform=1 + 256 * spec.rounds if rotated else 0,
            key_mode=spec.keys.mode,
            value_mode=spec.values.mode,
            reserved=0,
        )

    def pack(self) -> bytes:
        """The header as stored."""
        return _HEADER.pack(*self)

    @classmethod
    def unpack(cls, page: bytes) -> Header:
        """What the bytes say, whatever it is; raises PageError where they are too few."""
        if len(page) < HEADER_SIZE:
            raise PageError(f"page: {len(page)} bytes, shorter than its header of {HEADER_SIZE}")
        return cls._make(_HEADER.unpack_from(page))


@dataclass(frozen=True)
class Stream:
    """Where one array of a page lies. `part` is the entry of `Cache.nbytes` that bills it."""

    name: str
    part: str
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes without the gap that follows."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self, page: bytes) -> NDArray[Any]:
        """The array, a read-only view of the page's bytes."""
        count = prod(self.shape)
        return np.frombuffer(page, self.dtype, count, self.offset).reshape(self.shape)


class PageLayout:
    """Streams of a page by name, in their order, and its size.

    Names: key_codes, value_codes, key_signs, key_scales, key_norms, value_scales, key_steps,
    key_minima, value_steps, value_minima, key_mean, key_maxima, norm_maxima, value_maxima; only
    those that the codecs call for. Packed codes and signs have shape (kv_heads, bytes), uint8; fp16
    streams (kv_heads, tokens, channels).
    """

    def __init__(self, shape: LayerSpec) -> None:
        self.shape = shape
        self.streams: dict[str, Stream] = {}
        at = HEADER_SIZE
        for name, part, dtype, dims in _declare(shape):
            stream = Stream(name, part, at, np.dtype(dtype), (shape.kv_heads, *dims))
            self.streams[name] = stream
            at = _up(at + stream.size, 16)
        self.size = _up(at, 64)

    def __getitem__(self, name: str) -> Stream:
        return self.streams[name]

    def __contains__(self, name: str) -> bool:
        return name in self.streams

    @cached_property
    def parts(self) -> dict[str, int]:
        """Bytes of a page by part: codes, scales, means, headers (with all padding)."""
        parts = dict.fromkeys(("codes", "scales", "means"), 0)
        for stream in self.streams.values():
            parts[stream.part] += stream.size
        return {**parts, "headers": self.size - sum(parts.values())}

    def gaps(self) -> list[tuple[int, int]]:
        """Ranges [start, end) of the body that no stream uses and that must be zero."""
        gaps, at = [], HEADER_SIZE
        for stream in self.streams.values():
            gaps.append((at, stream.offset))
            at = stream.offset + stream.size
        return [(a, b) for a, b in [*gaps, (at, self.size)] if a < b]


def _up(at: int, multiple: int) -> int:
    return -(-at // multiple) * multiple


def _declare(shape: LayerSpec) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """(name, part, dtype, shape of a head) of the streams present."""
    p, d = shape.page_tokens, shape.head_dim
    keys, values = shape.keys, shape.values
    groups = -(-p // KIVI_GROUP), -(-d // KIVI_GROUP)
    scale = "<f2" if shape.scale == "fp16" else "u1"
    maxima = shape.scale != "fp16"

    def codes(codec: Codec) -> tuple[str, tuple[int, ...]]:
        if codec.family == "fp16":
            return "<f2", (p, d)
        return "u1", (sum(p * n * bits // 8 for _, n, bits in codec.splits(d)),)

    table = (
        ("key_codes", "codes", *codes(keys), True),
        ("value_codes", "codes", *codes(values), True),
        ("key_signs", "codes", "u1", (p * d // 8,), keys.qjl),
        ("key_scales", "scales", scale, (p,), keys.rotated),
        ("key_norms", "scales", scale, (p,), keys.qjl),
        ("value_scales", "scales", scale, (p,), values.rotated),
        ("key_steps", "scales", "<f2", (groups[0], d), keys.family == "kivi"),
        ("key_minima", "scales", "<f2", (groups[0], d), keys.family == "kivi"),
        ("value_steps", "scales", "<f2", (groups[1], p), values.family == "kivi"),
        ("value_minima", "scales", "<f2", (groups[1], p), values.family == "kivi"),
        ("key_mean", "means", "<f2", (d,), shape.key_centre == "page"),
        ("key_maxima", "scales", "<f4", (), keys.rotated and maxima),
        ("norm_maxima", "scales", "<f4", (), keys.qjl and maxima),
        ("value_maxima", "scales", "<f4", (), values.rotated and maxima),
    )
    return [entry[:4] for entry in table if entry[4]]


def crc(page: bytes) -> int:
    """CRC-32 of a page with its own field as 0."""
    state = zlib.crc32(page[:_CRC_AT])
    state = zlib.crc32(bytes(4), state)
    return zlib.crc32(memoryview(page)[_CRC_AT + 4 :], state)


def with_crc(page: bytes) -> bytes:
    """The page with its CRC field made right."""
    return page[:_CRC_AT] + struct.pack("<I", crc(page)) + page[_CRC_AT + 4 :]


def assemble(layout: PageLayout, header: Header, arrays: dict[str, NDArray[Any]]) -> bytes:
    """A page of these streams, gaps zero, CRC set. Raises PageError if names or shapes differ."""
    if arrays.keys() != layout.streams.keys():
        raise PageError(f"page: streams {sorted(arrays)} instead of {sorted(layout.streams)}")
    page = bytearray(layout.size)
    page[:HEADER_SIZE] = header.pack()
    for name, stream in layout.streams.items():
        array = arrays[name]
        if array.shape != stream.shape or array.dtype != stream.dtype:
            raise PageError(f"page: {name} is {array.dtype} {array.shape}, not {stream}")
        page[stream.offset : stream.offset + stream.size] = array.tobytes()
    return with_crc(bytes(page))


def read_codes(page: bytes, shape: LayerSpec, stream: str) -> NDArray[Any]:
    """Codes of "keys" or "values": uint8 (kv_heads, tokens, channels), or the fp16 numbers
    themselves."""
    codec = shape.keys if stream == "keys" else shape.values
    raw = PageLayout(shape)["key_codes" if stream == "keys" else "value_codes"].read(page)
    if codec.family == "fp16":
        return raw
    unpack = unpack_keys if stream == "keys" else unpack_values
    return unpack(raw, codec.splits(shape.head_dim), shape.page_tokens)


def flip_code(
    page: bytes, shape: LayerSpec, stream: str, head: int = 0, token: int = 0, channel: int = 0
) -> bytes:
    """The page with one code of "keys" or "values" changed and the CRC repaired.

    Changed is the top bit of a code (the centroid's sign for turbo), the top mantissa bit of an
    fp16 number.
    """
    codec = shape.keys if stream == "keys" else shape.values
    where = PageLayout(shape)["key_codes" if stream == "keys" else "value_codes"]
    codes = read_codes(page, shape, stream).copy()
    if codec.family == "fp16":
        codes.view("<u2")[head, token, channel] ^= 1 << 9
        packed = codes
    else:
        splits = codec.splits(shape.head_dim)
        bits = next(b for start, n, b in splits if start <= channel < start + n)
        codes[head, token, channel] ^= 1 << (bits - 1)
        packed = (pack_keys if stream == "keys" else pack_values)(codes, splits)
    end = where.offset + where.size
    return with_crc(page[: where.offset] + packed.tobytes() + page[end:])
