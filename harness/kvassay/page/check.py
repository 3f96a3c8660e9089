"""Reading a page from outside: everything that is refused before a page is used.

The order is that of docs/page-format.md, "Reading a page from outside".
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import IdentityError, PageError
from ..spec import Identity, LayerSpec
from .layout import Header, PageLayout, Stream, crc

_F32_SMALLEST_NORMAL: Final = np.float32(2.0**-126)
#: Names of the header fields as docs/page-format.md has them, where they are not the attribute's
#: name.
_FIELD_NAMES: Final = {
    "keys": "key mode",
    "values": "value mode",
    "key_centre": "key centring",
    "value_centre": "value centring",
    "scale": "scale kind",
    "kv_heads": "KV heads",
    "page_tokens": "token count",
}


def check_page(
    spec: LayerSpec,
    page: bytes,
    *,
    layer: int,
    token_start: int,
    identity: Identity | None = None,
) -> None:
    """Refuse a page that is damaged (PageError) or belongs elsewhere (IdentityError, with its
    field).

    Nothing is allocated from numbers that the page declares.
    """
    header = Header.parse(page)
    layout = PageLayout(header)
    if len(page) != layout.size:
        raise PageError(f"page: {len(page)} bytes, but its header calls for {layout.size}")
    for start, end in layout.gaps():
        if any(page[start:end]):
            raise PageError(f"page: bytes {start} .. {end - 1} are a gap and must be zero")
    expected = Header.of(spec, layer, token_start, identity)
    _check_fields(expected, header)
    if crc(page) != header.crc:
        raise PageError(f"page: CRC is {crc(page):#010x}, the header says {header.crc:#010x}")
    for stream in layout.streams.values():
        _check_numbers(stream, page)


def _check_fields(expected: Header, found: Header) -> None:
    for item in fields(Header):
        want, have = getattr(expected, item.name), getattr(found, item.name)
        if item.name != "crc" and want != have:
            name = _FIELD_NAMES.get(item.name, item.name.replace("_", " "))
            raise IdentityError(
                f"page: {name} is {_shown(have)}, this cache has {_shown(want)}", field=name
            )


def _shown(value: Any) -> str:
    return str(getattr(value, "name", value))


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
