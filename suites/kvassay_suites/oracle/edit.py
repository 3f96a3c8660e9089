"""Flips single stored bits of a dump and repairs the checksums: evidence that a codec runs."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from . import dump as dumps
from . import page as pages
from .dump import read_dump


def flip_code(
    data: bytes, layer: int, page: int, stream: str, head: int, token: int, channel: int, bit: int
) -> bytes:
    """The dump with one bit of one stored code of a live page flipped, both CRCs repaired.

    `stream` is "key codes", "value codes" or "key signs"; bit 0 is the lowest. Streams stored as
    fp16 have bits 0 (last of the mantissa) to 15.
    """
    dump = read_dump(data)
    found = dump.page(layer, page)
    where = found.streams[stream]
    each = 8 * where.size // found.heads
    if where.dtype == "tiles":
        address = head * each + _code_bit(found, stream, token, channel, bit)
    else:
        address = head * each + 16 * (token * found.head_dim + channel) + bit
    body = bytearray(found.data)
    _flip(body, 8 * where.offset + address)
    _seal(body, pages.CRC_AT)
    out = bytearray(data)
    start = dump.layers[layer].page_offsets[page]
    out[start : start + len(body)] = body
    _seal(out, dumps.CRC_AT)
    return bytes(out)


def flip_token(
    data: bytes, layer: int, section: str, head: int, token: int, channel: int, bit: int
) -> bytes:
    """The dump with one bit of an fp16 row flipped: section "sink keys", "residual values", ..."""
    where = read_dump(data).layers[layer].sections[section]
    _, tokens, d = where.shape
    out = bytearray(data)
    _flip(out, 8 * where.offset + 16 * ((head * tokens + token) * d + channel) + bit)
    _seal(out, dumps.CRC_AT)
    return bytes(out)


def put_number(data: bytes, layer: int, page: int, stream: str, value: float) -> bytes:
    """The dump with the first number of a page's stream replaced ("key maxima", "key mean", ...).

    Both CRCs are repaired, so that only the number itself is wrong.
    """
    where = read_dump(data).page(layer, page).streams[stream]
    start = read_dump(data).layers[layer].page_offsets[page]
    size = read_dump(data).layers[layer].page_bytes
    out = bytearray(data)
    body = out[start : start + size]
    number = np.array(value, where.dtype).tobytes()
    body[where.offset : where.offset + len(number)] = number
    _seal(body, pages.CRC_AT)
    out[start : start + size] = body
    _seal(out, dumps.CRC_AT)
    return bytes(out)


def put_token(data: bytes, layer: int, section: str, value: float) -> bytes:
    """The dump with the first number of a section of fp16 rows replaced, its CRC repaired."""
    where = read_dump(data).layers[layer].sections[section]
    out = bytearray(data)
    out[where.offset : where.offset + 2] = np.float16(value).tobytes()
    _seal(out, dumps.CRC_AT)
    return bytes(out)


def _code_bit(page: pages.Page, stream: str, token: int, channel: int, bit: int) -> int:
    for part in page.addresses(stream):
        if channel < part.shape[1]:
            return int(part[token, channel, bit])
        channel -= part.shape[1]
    raise IndexError(f"{stream}: no such channel")


def _flip(data: bytearray, address: int) -> None:
    data[address // 8] ^= 1 << (address % 8)


def _seal(data: bytearray, at: int) -> None:
    data[at : at + 4] = bytes(4)
    data[at : at + 4] = struct.pack("<I", zlib.crc32(data))
