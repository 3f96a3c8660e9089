"""The file of an index (docs/retrieval.md, "File"): one header, five sections, every byte checked.

Sizes follow from the header and are compared with the size of the file before anything is read.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, PageError
from ..page.tiles import LANES, unpack_keys
from ..writing import write_whole
from .calibration import KINDS, Calibration
from .checks import bad_scales, check_ids, check_vectors
from .code import LARGEST, LARGEST_ID, SMALLEST, VectorCode
from .protocol import F32, Affine, Rows, Stored

MAGIC: Final = b"KVRI"
VERSION: Final = 1
HEADER: Final = 128
_ALIGN: Final = 64
# magic, version, flags, dim, bits, calibration kind, seed, count, next id, samples, five checksums
_FIELDS: Final = struct.Struct("<4sHHIHHQQQQ5I")
_CRC: Final = struct.Struct("<I")
_COSINE, _CALIBRATED, _IDS, _VECTORS = 1, 2, 4, 8
_KNOWN: Final = _COSINE | _CALIBRATED | _IDS | _VECTORS
#: Beyond any mean of rotated vectors; behind it a score may be no number.
_MOST_SHIFT: Final = 2.0**56
#: Rows of kept vectors that are checked at a time.
_BATCH: Final = 4096


@dataclass(frozen=True, eq=False)
class Content:
    """What a file holds. ids: None where vector i has id i. vectors: None where not kept."""

    code: VectorCode
    cosine: bool
    calibration: Calibration | None
    stored: Stored
    ids: Rows | None
    vectors: F32 | None
    next_id: int


def write_index(path: str | os.PathLike[str], content: Content) -> None:
    """Write a file in one step. Raises WriteError."""
    sections = _sections_of(content)
    sums = [0] * len(sections)
    for i, parts in enumerate(sections):
        for part in parts:
            sums[i] = zlib.crc32(part, sums[i])
    code, made = content.code, content.calibration
    flags = _COSINE * content.cosine | _CALIBRATED * (made is not None)
    flags |= _IDS * (content.ids is not None) | _VECTORS * (content.vectors is not None)
    header = _FIELDS.pack(
        *(MAGIC, VERSION, flags, code.dim, code.bits),
        *(KINDS.index(made.kind) if made else 0, code.seed, content.stored.count),
        *(content.next_id, made.samples if made else 0, *sums),
    )
    header += bytes(HEADER - _CRC.size - len(header))
    header += _CRC.pack(zlib.crc32(header))
    write_whole("index", path, [header, *(part for ps in sections for part in ps)])


def _sections_of(content: Content) -> list[list[memoryview]]:
    """Codes, scales, ids, calibration, vectors, each with its padding."""
    affine = content.calibration.affine if content.calibration else None
    arrays: list[list[NDArray[Any]]] = [
        list(content.stored.tiles),
        [content.stored.scales],
        [] if content.ids is None else [content.ids],
        [] if affine is None else [affine.shift, _gain(affine)],
        [] if content.vectors is None else [content.vectors],
    ]
    return [_padded(section) for section in arrays]


def _gain(affine: Affine) -> F32:
    """A mean has none: ones are written."""
    return np.ones_like(affine.shift) if affine.gain is None else affine.gain


def _padded(arrays: list[NDArray[Any]]) -> list[memoryview]:
    parts = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in arrays]
    size = sum(len(part) for part in parts)
    return [part for part in (*parts, memoryview(bytes(-size % _ALIGN))) if len(part)]


def read_index(path: str | os.PathLike[str]) -> Content:
    """Map a file and check every byte of it. Raises PageError naming the file and the fault."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"load: {path!r} is not the path of a file")
    where = Path(path)
    try:
        with where.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise PageError(f"cannot read index {os.fspath(path)!r}: {error}") from error
    try:
        return _Reader(data).content()
    except (PageError, InputError) as error:
        raise PageError(f"index {os.fspath(path)!r}: {error}") from None


class _Reader:
    """A mapped file, whose header was checked."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = memoryview(data)
        head = self._check_header()
        self._flags, dim, bits, self._kind, seed, self._count, self._next, self._samples = head[
            2:10
        ]
        self._code = VectorCode(dim, bits, seed)
        self._check_sections(head[10:])

    def _check_header(self) -> tuple[Any, ...]:
        head = self._data[:HEADER]
        if len(head) < HEADER or bytes(head[:4]) != MAGIC:
            raise PageError("not an index of kvassay: it does not begin with KVRI")
        if zlib.crc32(head[: -_CRC.size]) != _CRC.unpack(head[-_CRC.size :])[0]:
            raise PageError("its header is damaged")
        fields = _FIELDS.unpack_from(head)
        if fields[1] != VERSION:
            raise PageError(f"version {fields[1]}, this kvassay reads {VERSION}")
        if fields[2] & ~_KNOWN or fields[5] >= len(KINDS) or any(head[_FIELDS.size : -_CRC.size]):
            raise PageError("its header has bits that no index has")
        return fields

    def _sizes(self) -> list[int]:
        """Bytes of each section."""
        code, count = self._code, self._count
        blocks = -(-count // LANES)
        sizes = (
            blocks * LANES * code.code_bytes,
            blocks * LANES * 4,
            count * 8 if self._flags & _IDS else 0,
            2 * code.channels * 4 if self._flags & _CALIBRATED else 0,
            count * code.dim * 4 if self._flags & _VECTORS else 0,
        )
        return [size + -size % _ALIGN for size in sizes]

    def _check_sections(self, sums: tuple[int, ...]) -> None:
        sizes = self._sizes()
        if HEADER + sum(sizes) != len(self._data):
            raise PageError(
                f"{len(self._data)} bytes, its header says {HEADER + sum(sizes)}: it was cut, or "
                f"is not whole"
            )
        self._sections = list(self._cut(sizes))
        names = ("codes", "scales", "ids", "calibration", "vectors")
        for name, section, expected in zip(names, self._sections, sums, strict=True):
            if zlib.crc32(section) != expected:
                raise PageError(f"its {name} are damaged: the checksum differs")

    def _cut(self, sizes: list[int]) -> Iterator[memoryview]:
        at = HEADER
        for size in sizes:
            yield self._data[at : at + size]
            at += size

    def content(self) -> Content:
        """Everything, as views of the mapped bytes."""
        return Content(
            code=self._code,
            cosine=bool(self._flags & _COSINE),
            calibration=self._calibration(),
            stored=self._stored(),
            ids=self._ids(),
            vectors=self._vectors(),
            next_id=self._next,
        )

    def _array(self, section: int, dtype: type[np.generic], count: int) -> NDArray[Any]:
        found = np.frombuffer(self._sections[section], dtype, count)
        if any(self._sections[section][found.nbytes :]):
            raise PageError("bytes after a section are not zero")
        return found

    def _stored(self) -> Stored:
        code, blocks = self._code, -(-self._count // LANES)
        size = LANES * code.width * code.bits // 8
        tiles = self._array(0, np.uint8, code.slabs * blocks * size)
        scales = self._array(1, np.float32, blocks * LANES)
        if bad_scales(scales).any() or scales[self._count :].any():
            raise PageError("a scale is one that no vector has")
        last = tiles.reshape(code.slabs, blocks, size)[:, -1:]
        for slab in last if self._count % LANES else ():
            codes = unpack_keys(slab.reshape(-1), ((0, code.width, code.bits),), LANES)
            if codes[self._count % LANES :].any():
                raise PageError("codes beyond its vectors are not zero")
        return Stored(tiles.reshape(code.slabs, blocks, size), scales, self._count)

    def _calibration(self) -> Calibration | None:
        if not self._flags & _CALIBRATED:
            if self._kind or self._samples:
                raise PageError("it is not calibrated, but has the kind or sample of a calibration")
            return None
        both = self._array(3, np.float32, 2 * self._code.channels).reshape(2, -1)
        shift, gain = np.abs(both[0]), both[1]
        if not ((shift <= _MOST_SHIFT) & (gain >= SMALLEST) & (gain <= LARGEST)).all():  # NaN too
            raise PageError("its calibration has a shift or a gain that no sample gives")
        kind = KINDS[self._kind]
        if kind == "mean" and (both[1] != 1).any():
            raise PageError("its calibration is a mean, but has a gain")
        affine = Affine(both[0], None if kind == "mean" else both[1])
        return Calibration(kind, self._samples, affine)

    def _ids(self) -> Rows | None:
        if self._next > LARGEST_ID + 1:
            raise PageError(f"next id {self._next}: ids end at 2^62 - 1")
        if not self._flags & _IDS:
            if self._next < self._count:
                raise PageError(f"next id {self._next}, but it holds {self._count} vectors")
            return None
        ids = self._array(2, np.int64, self._count)
        check_ids("its ids", ids)
        if len(ids) and int(ids.max()) >= self._next:
            raise PageError(f"id {ids.max()}, but the next is said to be {self._next}")
        return ids

    def _vectors(self) -> F32 | None:
        if not self._flags & _VECTORS:
            return None
        dim = self._code.dim
        vectors = self._array(4, np.float32, self._count * dim).reshape(-1, dim)
        for start in range(0, self._count, _BATCH):
            check_vectors(f"its vectors from {start} on", vectors[start : start + _BATCH], dim)
        return vectors
