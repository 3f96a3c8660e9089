"""Reading a page from outside: everything that is refused before a page is used.

The order is that of docs/page-format.md, "Reading a page from outside".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import IdentityError, PageError
from ..spec import Identity, LayerSpec
from .layout import Header, PageLayout, Stream, crc

_F32_SMALLEST_NORMAL: Final = np.float32(2.0**-126)
#: Header fields by their names in docs/page-format.md, in the order in which they are compared: the
#: error where one differs, and its value. A field gives the same error whatever stands in it.
_FIELDS: Final[tuple[tuple[str, bool, Callable[[Header], object]], ...]] = (
    ("magic", False, lambda h: h.magic),
    ("version", False, lambda h: h.version),
    ("codebook version", False, lambda h: h.flags >> 8 & 15),
    ("unknown flags", False, lambda h: h.flags & 0xF0C0),
    ("reserved", False, lambda h: h.reserved),
    ("KV heads", True, lambda h: h.kv_heads),
    ("head dim", True, lambda h: h.head_dim),
    ("token count", True, lambda h: h.page_tokens),
    ("key mode", True, lambda h: h.key_mode),
    ("value mode", True, lambda h: h.value_mode),
    ("scale kind", True, lambda h: h.flags & 3),
    ("key centring", True, lambda h: h.flags >> 2 & 3),
    ("value centring", True, lambda h: h.flags >> 4 & 3),
    ("transform", True, lambda h: h.transform),
    ("seed", True, lambda h: h.seed),
    ("model", True, lambda h: h.model),
    ("tokenizer", True, lambda h: h.tokenizer),
    ("runtime", True, lambda h: h.runtime),
    ("stored dim", False, lambda h: h.stored_dim),
    ("layer", False, lambda h: h.layer),
    ("token start", False, lambda h: h.token_start),
)


def check_page(
    spec: LayerSpec,
    page: bytes,
    *,
    layer: int,
    token_start: int,
    identity: Identity | None = None,
) -> None:
    """Refuse a page that is damaged or misplaced (PageError) or another cache's (IdentityError,
    with its field).

    Nothing is allocated from numbers that the page declares.
    """
    header, expected = Header.unpack(page), Header.of(spec, layer, token_start, identity)
    _check_fields(expected, header)
    layout = PageLayout(spec)
    if len(page) != layout.size:
        raise PageError(f"page: {len(page)} bytes, but one of this cache has {layout.size}")
    for start, end in layout.gaps():
        if any(page[start:end]):
            raise PageError(f"page: bytes {start} .. {end - 1} are a gap and must be zero")
    if crc(page) != header.crc:
        raise PageError(f"page: CRC is {crc(page):#010x}, the header says {header.crc:#010x}")
    for stream in layout.streams.values():
        _check_numbers(stream, page)


def _check_fields(expected: Header, found: Header) -> None:
    for name, identifies, value in _FIELDS:
        want, have = value(expected), value(found)
        if want == have:
            continue
        if identifies:
            raise IdentityError(f"page: {name} is {have}, this cache has {want}", field=name)
        raise PageError(f"page: {name} is {have!r}, expected {want!r}")


def _check_numbers(stream: Stream, page: bytes) -> None:
    """Scales and steps finite and not negative, maxima also normal or 0, other fp16 numbers
    finite."""
    if stream.dtype == np.uint8:
        return
    numbers = stream.read(page)
    bad: NDArray[np.bool_] = ~np.isfinite(numbers)
    if stream.part == "scales" and not stream.name.endswith("minima"):
        bad |= np.signbit(numbers)
    if stream.name.endswith("maxima"):
        bad |= (numbers != 0) & (np.abs(numbers) < _F32_SMALLEST_NORMAL)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise PageError(
            f"page: {stream.name}{list(at)} is {float(numbers[at])!r}, which no page stores"
        )
