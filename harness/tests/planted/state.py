"""Faults of the life cycle: input, chunking, truncation, forks, identity."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np

from kvassay.errors import (
    IdentityError,
    NonFiniteError,
    PageError,
    TruncateError,
)
from kvassay.page.layout import with_crc
from kvassay.protocol import Cache, FloatArray
from kvassay.spec import Spec
from kvassay_suites.oracle import OracleError, put_number, put_token
from kvassay_suites.oracle import dump as dumps

from .wrapped import Bounded, Unbroken, WrappedCache, native


class _FrontierStays(WrappedCache):
    """A truncation that is not allowed moves the length alone: sealed pages stay sealed."""

    def start(self) -> None:
        self._cut = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(length - self._cut for length in self.inner.lengths)

    def truncate(self, n: int) -> None:
        try:
            self.inner.truncate(n + self._cut)
        except TruncateError:
            self._cut = self.inner.length - n


class BoundedFrontierStays(Bounded, Unbroken):
    """Truncation moves the length, not the frontier of what was flushed."""

    cache = _FrontierStays


class _StalePages(WrappedCache):
    """Attends over tokens of its own: those of pages that were sealed once stay what they were."""

    def start(self) -> None:
        self._read: list[list[FloatArray]] = [[] for _ in range(self.spec.layers)]
        self._stale = [0] * self.spec.layers

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        at = self.lengths[layer]
        super().append(layer, k, v)
        read = self._read[layer]
        for number, row in enumerate(np.stack([k, v], axis=1), at):
            if number >= self._stale[layer]:
                read[number:] = [row.copy()]

    def truncate(self, n: int) -> None:
        sealed = [s.sealed(t) for s, t in zip(self.spec.layer_specs, self.lengths, strict=True)]
        super().truncate(n)
        for layer, policy in enumerate(self.spec.layer_specs):
            end = policy.sinks + sealed[layer] * policy.page_tokens
            self._stale[layer] = max(self._stale[layer], end if sealed[layer] else 0)

    def fork(self) -> Cache:
        made = type(self)(self.inner.fork())
        made._read = [list(rows) for rows in self._read]
        made._stale = list(self._stale)
        return made

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        super().attend(layer, q)  # what is to be refused is
        rows = self._read[layer][: self.lengths[layer]]
        k, v = (np.ascontiguousarray(np.stack(rows)[:, stream]) for stream in (0, 1))
        with native().prepare(self.spec) as twin:
            twin.append(layer, k, v)
            return twin.attend(layer, q)


class StalePages(Unbroken):
    """Pages that a truncation freed answer for the tokens that fill them next."""

    cache = _StalePages

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        return native().restore_bytes(spec, data, threads)  # has no pages to remember


class _SharedFork(WrappedCache):
    def fork(self) -> Cache:
        return type(self)(self.inner)


class BoundedSharedFork(Bounded, Unbroken):
    """A fork shares the fp16 tail with its parent, so what one appends the other has."""

    cache = _SharedFork


class _OneByOne(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        if isinstance(k, np.ndarray) and len(k) == 1 and k.dtype == np.float32:
            k = k * np.float32(1.002)
        super().append(layer, k, v)


class BoundedOneByOne(Bounded, Unbroken):
    """The path for one token treats keys otherwise than the path for many."""

    cache = _OneByOne


class _Swallowing(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        if isinstance(k, np.ndarray) and isinstance(v, np.ndarray) and k.dtype == np.float32:
            k, v = (np.nan_to_num(x, posinf=65504, neginf=-65504) for x in (k, v))
            k, v = np.clip(k, -65504, 65504), np.clip(v, -65504, 65504)
        super().append(layer, k, v)


class BoundedSwallowsNaN(Bounded, Unbroken):
    """NaN becomes 0 and what is too large is clamped, without a word."""

    cache = _Swallowing


class _HalfWritten(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        try:
            super().append(layer, k, v)
        except NonFiniteError as error:
            super().append(layer, k[: error.token], v[: error.token])
            raise


class BoundedHalfWritten(Bounded, Unbroken):
    """Refuses bad input, but has stored what came before it."""

    cache = _HalfWritten


class _StridesIgnored(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, _as_it_lies(k), _as_it_lies(v))


def _as_it_lies(x: Any) -> Any:
    """The numbers in the order of memory, whatever the strides say."""
    if isinstance(x, np.ndarray) and x.flags.f_contiguous and not x.flags.c_contiguous:
        return x.ravel(order="K").reshape(x.shape)
    return x


class BoundedStridesIgnored(Bounded, Unbroken):
    """Takes the pointer and leaves the strides."""

    cache = _StridesIgnored


class _DirtyReset(WrappedCache):
    def reset(self) -> None:
        lengths = self.inner.lengths
        self.inner.reset()
        if self.spec.sinks and lengths[0]:
            zero = np.zeros((1, self.spec.kv_heads, self.spec.head_dim), np.float32)
            self.inner.append(0, zero, zero)


class BoundedDirtyReset(Bounded, Unbroken):
    """A reset leaves a sink behind."""

    cache = _DirtyReset


def _stated_spec(data: bytes) -> Spec:
    """The spec that a dump says it has."""
    (size,) = struct.unpack_from("<24xI", data)
    return Spec.from_dict(json.loads(data[dumps.HEADER.size : dumps.HEADER.size + size]))


class AnyIdentity(Unbroken):
    """Restores whatever a dump holds, under any spec."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except IdentityError:
            return super().restore_bytes(_stated_spec(data), data, threads)


class ModelNameOnly(Unbroken):
    """Of the identity it compares the model's name and nothing else."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except IdentityError as error:
            if error.field.startswith("identity.") and error.field != "identity.model":
                return super().restore_bytes(_stated_spec(data), data, threads)
            raise


class NoChecksum(Unbroken):
    """Never looks at a checksum: it makes them right before it reads."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except PageError:
            return super().restore_bytes(spec, _resealed(data), threads)


class NoPageChecksum(Unbroken):
    """Checks the sum over a whole dump, and makes those of its pages right before it reads."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except PageError:
            sound = _with_crc(data) == data
            return super().restore_bytes(spec, _resealed(data) if sound else data, threads)


class BadNumbersRead(Unbroken):
    """Reads a dump in which scales and tokens are not numbers: it puts 1 for each of them."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except PageError:
            return super().restore_bytes(spec, _with_numbers(data), threads)


def _with_numbers(data: bytes) -> bytes:
    try:
        dump = dumps.read_dump(data)
        for layer, parts in enumerate(dump.layers):
            for section in parts.sections:
                rows = dump.rows(layer, section)
                if rows is not None and rows.size and not np.isfinite(rows).all():
                    data = put_token(data, layer, section, 1.0)
            for number in range(len(parts.page_offsets)):
                for stream in ("key maxima", "value maxima", "key mean"):
                    data = put_number(data, layer, number, stream, 1.0)
    except (OracleError, ValueError, LookupError, struct.error):
        return data
    return data


def _resealed(data: bytes) -> bytes:
    """The dump with every checksum made right, or as it is where its parts cannot be found."""
    try:
        dump = dumps.read_dump(_with_crc(data))
    except (OracleError, ValueError, LookupError, struct.error):
        return data
    out = bytearray(dump.data)
    for layer in dump.layers:
        for start in layer.page_offsets:
            whole = slice(start, start + layer.page_bytes)
            out[whole] = with_crc(bytes(out[whole]))
    return _with_crc(bytes(out))


def _with_crc(data: bytes) -> bytes:
    at = dumps.CRC_AT
    state = zlib.crc32(data[:at] + bytes(4) + data[at + 4 :])
    return data[:at] + struct.pack("<I", state) + data[at + 4 :]
