"""Stored vectors in a module: kvassay_retrieval.h, driven through linear memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import UnavailableError
from kvassay.protocol import Availability
from kvassay.retrieval import Affine, Stored, VectorCode

from . import backend
from .backend import WasmBackend
from .instance import Instance
from .layout import constants, layout, retrieval_signatures

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
Rows = NDArray[np.int64]

#: Vectors that go in at a time, and queries: what linear memory holds besides codes stays small.
_BATCH: Final = 1024


class WasmScorer:
    """One module, in an instance of its own.

    It keeps a copy of the codes that were searched last in linear memory, since a module sees
    nothing else; so an index of more than about 4 GB is refused (CacheMemoryError).
    """

    name = "wasm"

    def __init__(self, instance: Instance, variant: str) -> None:
        self.variant = variant
        self._instance = instance
        missing = sorted(name for name in retrieval_signatures() if not instance.has(name))
        if missing:
            raise UnavailableError(f"{instance.path.name}: does not export {missing[0]}")
        found, needed = instance.call("kv_retrieval_version"), constants()["KV_RETRIEVAL_VERSION"]
        if found != needed:
            raise UnavailableError(
                f"{instance.path.name}: retrieval version {found}, this kvassay needs {needed}; "
                f"build the module against its header"
            )
        self._lock = threading.Lock()  # one memory: threads take turns
        self._plan = _Held(instance)
        self._scratch = _Held(instance)
        self._codes = _Held(instance)
        self._made: tuple[VectorCode, Affine | None] | None = None
        self._read: Stored | None = None

    def rotate(self, code: VectorCode, x: F32) -> F32:
        """x (n, dim) as (n, channels), unscaled."""
        y = np.empty((len(x), code.channels), np.float32)
        with self._lock:
            plan = self._planned(code, None)
            for part in _batches(len(x)):
                rows = x[part]
                with self._staged(rows, out=[y[part]]) as (x_at, y_at):
                    self._call("rotate", 1, plan, x_at, len(rows), y_at)
        return y

    def encode(self, code: VectorCode, affine: Affine | None, x: F32) -> tuple[U8, F32]:
        """Codes (n, channels), one a byte, and scales (n,)."""
        codes = np.empty((len(x), code.channels), np.uint8)
        scales = np.empty(len(x), np.float32)
        with self._lock:
            plan = self._planned(code, affine)
            for part in _batches(len(x)):
                rows = x[part]
                with self._staged(rows, out=[codes[part], scales[part]]) as (x_at, *out):
                    self._call("encode", 1, plan, x_at, len(rows), *out)
        return codes, scales

    def search(
        self,
        code: VectorCode,
        affine: Affine | None,
        stored: Stored,
        q: F32,
        k: int,
        allowed: U8 | None,
    ) -> tuple[F32, Rows]:
        """The k best for each row of q: scores and rows."""
        scores = np.empty((len(q), k), np.float32)
        rows = np.empty((len(q), k), np.int64)
        mask = np.zeros(0, np.uint8) if allowed is None else allowed
        with self._lock:
            plan = self._planned(code, affine)
            read = (*self._copied(stored), stored.count)
            for part in _batches(len(q)):
                with self._staged(mask, q[part], out=[scores[part], rows[part]]) as at:
                    mask_at, q_at, *out = at
                    given = (0 if allowed is None else mask_at, q_at, len(q[part]), k)
                    self._call("search", len(q[part]), plan, *read, *given, *out)
        return scores, rows

    def _planned(self, code: VectorCode, affine: Affine | None) -> int:
        """The address of the tables, made once for each code and calibration in a row."""
        if self._made is not None and self._made[0] is code and self._made[1] is affine:
            return self._plan.address
        self._made = None
        fields = {"dim": code.dim, "bits": code.bits, "seed": code.seed}
        packed = np.frombuffer(layout("kv_retrieval_spec").pack(fields), np.uint8)
        none = np.zeros(0, np.float32)
        shift = affine.shift if affine else none
        gain = affine.gain if affine and affine.gain is not None else none
        name = np.frombuffer(self.variant.encode() + b"\0", np.uint8)
        with self._staged(packed, shift, gain, name) as (spec, shift_at, gain_at, name_at):
            given = (shift_at if len(shift) else 0, gain_at if len(gain) else 0)
            size = self._instance.call("kv_retrieval_plan_bytes", spec)
            plan = self._plan.of(size)
            self._instance.check("kv_retrieval_plan_init", spec, *given, name_at, plan, size)
        self._made = (code, affine)
        return plan

    def _copied(self, stored: Stored) -> tuple[int, int, int]:
        """Addresses of codes and scales, and bytes from slab to slab; copied when they changed."""
        slab_bytes = stored.tiles[0].nbytes
        codes = len(stored.tiles) * slab_bytes
        if self._read is not stored:
            self._read = None
            address = self._codes.of(codes + stored.scales.nbytes)
            for slab, tiles in enumerate(stored.tiles):
                self._instance.memory.write_array(address + slab * slab_bytes, tiles)
            self._instance.memory.write_array(address + codes, stored.scales)
            self._read = stored
        return self._codes.address, slab_bytes, self._codes.address + codes

    def _call(self, name: str, queries: int, plan: int, *arguments: int) -> None:
        needed = self._instance.call("kv_retrieval_scratch_bytes", plan, queries)
        scratch = self._scratch.of(needed)
        self._instance.check(f"kv_retrieval_{name}", plan, *arguments, scratch, needed)

    @contextmanager
    def _staged(
        self, *given: NDArray[Any], out: Sequence[NDArray[Any]] = ()
    ) -> Iterator[list[int]]:
        """Addresses of arrays that go in, then of those that come out, while a call lasts."""
        arrays = (*given, *out)
        starts, end = [], 0
        for array in arrays:
            starts.append(end)
            end += -(-array.nbytes // 64) * 64
        memory = self._instance.memory
        with self._instance.room(end) as room:
            for start, array in zip(starts, given, strict=False):
                memory.write_array(room + start, array)
            yield [room + start for start in starts]
            for start, array in zip(starts[len(given) :], out, strict=True):
                memory.read_array(room + start, array)


class _Held:
    """A piece of linear memory that is kept from call to call."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._size = 0
        self.address = 0

    def of(self, size: int) -> int:
        """Its address, with room for so many bytes; what it held is lost if it had less."""
        if size > self._size:
            if self._size:
                self._instance.give_back(self.address, self._size)
            self._size = 0
            self.address = self._instance.take(size, "codes, tables or scratch")
            self._size = size
        return self.address


def _batches(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _BATCH, count)) for start in range(0, count, _BATCH))


class WasmScorers:
    """The provider: the modules of the backend `wasm`."""

    name = "wasm"

    def variants(self) -> Mapping[str, Availability]:
        """Every module, best first."""
        return backend.variants()

    def load(self, variant: str) -> WasmScorer:
        """The scorer of a module that runs here; UnavailableError for others."""
        loaded = backend.load(variant)
        assert isinstance(loaded, WasmBackend)
        return WasmScorer(loaded.desk, variant)


scorers: Final = WasmScorers()
