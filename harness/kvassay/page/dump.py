"""The dump format: one cache in one file (docs/page-format.md, "Dump format")."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import IdentityError, PageError
from ..spec import MAX_TOKENS, LayerSpec, Spec
from .check import check_page
from .identity import check_text
from .layout import KEY_CENTRE_NUMBER, SCALE_NUMBER, VALUE_CENTRE_NUMBER, PageLayout

MAGIC: Final = b"KVDM"
VERSION: Final = 1
HEADER_SIZE: Final = 32
RECORD_SIZE: Final = 64

_HEADER: Final = struct.Struct("<4sHHQIIII")
_RECORD: Final = struct.Struct("<4H6BH3IfQQIIQ")
_CRC_AT: Final = 16
#: Fields of a record that repeat the spec, by the spec's names.
_RECORD_FIELDS: Final = (
    *("kv_heads", "query_heads", "head_dim", "page_tokens", "keys", "values"),
    *("key_centre", "value_centre", "scale", "rounds"),
    *("reserved", "window", "sinks", "span", "softmax_scale", "seed"),
)

HalfArray = NDArray[np.float16]


@dataclass(frozen=True)
class LayerDump:
    """One layer of a dump. fp16 arrays are (kv_heads, tokens, head_dim), means (kv_heads,
    head_dim)."""

    length: int
    first_page: int
    key_mean: HalfArray | None
    value_mean: HalfArray | None
    sink_keys: HalfArray
    sink_values: HalfArray
    residual_keys: HalfArray
    residual_values: HalfArray
    pages: Sequence[bytes]

    def arrays(self) -> list[HalfArray]:
        """The fp16 arrays in the order of the file."""
        means = [mean for mean in (self.key_mean, self.value_mean) if mean is not None]
        tokens = [self.sink_keys, self.sink_values, self.residual_keys, self.residual_values]
        return means + tokens


def first_live_page(spec: LayerSpec, length: int) -> int:
    """Pages before the first one that a query may still reach once `length` tokens are appended."""
    if not spec.span:
        return 0
    passed = max(0, length - spec.span - spec.sinks) // spec.page_tokens
    return min(passed, spec.sealed(length))


def pack_dump(spec: Spec, layers: Sequence[LayerDump]) -> bytes:
    """The dump of a cache; `layers` holds live pages only."""
    text = spec.identity_text.encode()
    at = _up(_up(HEADER_SIZE + len(text), 16) + RECORD_SIZE * len(layers), 64)
    records, sections = [], []
    for layer_spec, layer in zip(spec.layer_specs, layers, strict=True):
        section = _pack_section(layer)
        records.append(
            _RECORD.pack(
                *_constants(layer_spec), layer.length, layer.first_page, len(layer.pages), at
            )
        )
        sections.append(section)
        at += len(section)
    head = bytearray(HEADER_SIZE)
    _HEADER.pack_into(head, 0, MAGIC, VERSION, 0, at, 0, len(layers), len(text), 0)
    front = _padded(_padded(bytes(head) + text, 16) + b"".join(records), 64)
    data = bytearray(front + b"".join(sections))
    struct.pack_into("<I", data, _CRC_AT, zlib.crc32(data))
    return bytes(data)


def parse_dump(spec: Spec, data: bytes) -> list[LayerDump]:
    """The layers of a dump of an equal spec, every byte checked before anything is returned.

    Raises PageError for damage and IdentityError, with the first differing field, for another
    cache's dump.
    """
    text_size, layers = _check_header(data)
    records_at = _check_identity(spec, data, text_size)
    end = records_at + RECORD_SIZE * layers
    if end > len(data):
        raise PageError(f"dump: {len(data)} bytes cannot hold {layers} layer records")
    if layers != spec.layers:
        raise PageError(f"dump: {layers} layers, but its identity text has {spec.layers}")
    _check_zero(data, end, _up(end, 64))
    places, at = [], _up(end, 64)
    for index, layer_spec in enumerate(spec.layer_specs):
        record = _RECORD.unpack_from(data, records_at + RECORD_SIZE * index)
        place = _check_record(layer_spec, index, record, at, len(data))
        places.append(place)
        at = place.end
    if at != len(data):
        raise PageError(f"dump: sections end at byte {at} of {len(data)}")
    return [_read_section(spec, index, place, data) for index, place in enumerate(places)]


@dataclass(frozen=True)
class _Place:
    """Where a layer's section lies, from its checked record."""

    length: int
    first_page: int
    pages: int
    start: int
    shapes: tuple[tuple[int, int, int], ...]
    means: tuple[bool, bool]
    pages_at: int
    page_size: int

    @property
    def end(self) -> int:
        return self.pages_at + self.pages * self.page_size


def _constants(spec: LayerSpec) -> tuple[Any, ...]:
    """The part of a layer record that repeats the spec."""
    return (
        *(spec.kv_heads, spec.query_heads, spec.head_dim, spec.page_tokens),
        *(spec.keys.mode, spec.values.mode),
        *(KEY_CENTRE_NUMBER[spec.key_centre], VALUE_CENTRE_NUMBER[spec.value_centre]),
        *(SCALE_NUMBER[spec.scale], spec.rounds, 0),
        *(spec.window, spec.sinks, spec.span, spec.softmax_scale, spec.seed),
    )


def _pack_section(layer: LayerDump) -> bytes:
    fp16 = b"".join(array.astype("<f2").tobytes() for array in layer.arrays())
    return _padded(fp16, 64) + b"".join(layer.pages)


def _check_header(data: bytes) -> tuple[int, int]:
    """(size of the identity text, layers)."""
    if len(data) < HEADER_SIZE:
        raise PageError(f"dump: {len(data)} bytes, shorter than its header of {HEADER_SIZE}")
    magic, version, zero, total, crc, layers, text_size, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PageError(f"dump: magic is {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise PageError(f"dump: format version {version}, this reader knows {VERSION}")
    if total != len(data) or total % 64:
        raise PageError(f"dump: {len(data)} bytes, the header says {total}")
    if zero or reserved:
        raise PageError("dump: reserved fields of the header must be zero")
    state = zlib.crc32(bytes(4), zlib.crc32(data[:_CRC_AT]))
    state = zlib.crc32(memoryview(data)[_CRC_AT + 4 :], state)
    if state != crc:
        raise PageError(f"dump: CRC is {state:#010x}, the header says {crc:#010x}")
    return text_size, layers


def _check_identity(spec: Spec, data: bytes, size: int) -> int:
    """Where the layer records start."""
    end = HEADER_SIZE + size
    records_at = _up(end, 16)
    if records_at > len(data):
        raise PageError(f"dump: {len(data)} bytes cannot hold an identity text of {size}")
    _check_zero(data, end, records_at)
    check_text(spec.identity_text, data[HEADER_SIZE:end])
    return records_at


def _check_record(
    spec: LayerSpec, index: int, record: tuple[Any, ...], at: int, total: int
) -> _Place:
    """The place of a layer whose record agrees with its spec and with the file's size."""
    where = f"dump: layer {index}"
    for name, want, have in zip(_RECORD_FIELDS, _constants(spec), record, strict=False):
        if want == have:
            continue
        if name == "reserved":
            raise PageError(f"{where}: the reserved field of its record must be zero")
        raise IdentityError(f"{where}: {name} is {have}, this cache has {want}", field=name)
    length, first_page, pages, offset = record[len(_RECORD_FIELDS) :]
    if length > MAX_TOKENS:
        raise PageError(f"{where}: {length} tokens, more than the {MAX_TOKENS} that pages number")
    sealed = spec.sealed(length)
    if first_page != first_live_page(spec, length) or first_page + pages != sealed:
        raise PageError(
            f"{where}: pages {first_page} .. {first_page + pages} do not fit a length of {length}"
        )
    if offset != at:
        raise PageError(f"{where}: section at {offset}, it belongs at {at}")
    sinks = min(length, spec.sinks)
    residual = length - sinks - spec.page_tokens * sealed
    counts = (sinks, sinks, residual, residual)
    shapes = tuple((spec.kv_heads, count, spec.head_dim) for count in counts)
    means = tuple(
        sealed > 0 and centre == "frozen" for centre in (spec.key_centre, spec.value_centre)
    )
    size = 2 * (sum(map(prod, shapes)) + sum(means) * spec.kv_heads * spec.head_dim)
    place = _Place(
        *(length, first_page, pages, at, shapes, (means[0], means[1])),
        *(_up(at + size, 64), PageLayout(spec).size),
    )
    if place.end > total:
        raise PageError(f"{where}: {total} bytes cannot hold its {length} tokens")
    return place


def _read_section(spec: Spec, index: int, place: _Place, data: bytes) -> LayerDump:
    layer_spec = spec.layer_specs[index]
    at = place.start
    arrays: list[HalfArray | None] = []
    shape = (layer_spec.kv_heads, layer_spec.head_dim)
    for present, dims in [(m, shape) for m in place.means] + [(True, s) for s in place.shapes]:
        array = None
        if present:
            array = np.frombuffer(data, "<f2", prod(dims), at).reshape(dims).astype(np.float16)
            at += array.nbytes
            if not np.isfinite(array).all():
                raise PageError(
                    f"dump: layer {index}: NaN or infinity among its fp16 tokens or means"
                )
        arrays.append(array)
    _check_zero(data, at, place.pages_at)
    pages = []
    for number in range(place.pages):
        start = place.pages_at + number * place.page_size
        page = data[start : start + place.page_size]
        token = layer_spec.sinks + (place.first_page + number) * layer_spec.page_tokens
        where = f"dump: layer {index}, page {place.first_page + number}"
        try:
            check_page(layer_spec, page, layer=index, token_start=token, identity=spec.identity)
        except PageError as error:
            raise PageError(f"{where}: {error}") from None
        except IdentityError as error:
            raise IdentityError(f"{where}: {error}", field=error.field) from None
        pages.append(page)
    key_mean, value_mean, *tokens = arrays
    sink_keys, sink_values, residual_keys, residual_values = (t for t in tokens if t is not None)
    return LayerDump(
        length=place.length,
        first_page=place.first_page,
        key_mean=key_mean,
        value_mean=value_mean,
        sink_keys=sink_keys,
        sink_values=sink_values,
        residual_keys=residual_keys,
        residual_values=residual_values,
        pages=pages,
    )


def _check_zero(data: bytes, start: int, end: int) -> None:
    if any(data[start:end]):
        raise PageError(f"dump: bytes {start} .. {end - 1} are padding and must be zero")


def _padded(data: bytes, multiple: int) -> bytes:
    return data + bytes(-len(data) % multiple)


def _up(at: int, multiple: int) -> int:
    return -(-at // multiple) * multiple
