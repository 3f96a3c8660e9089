"""Stored vectors in the C library: kvassay_retrieval.h, driven through cffi."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import CacheMemoryError, UnavailableError
from kvassay.protocol import Availability
from kvassay.retrieval import Affine, Stored, VectorCode

from . import backend
from .abi import Library, retrieval_interface
from .backend import LibraryBackend
from .failures import check

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
Rows = NDArray[np.int64]

_ALIGN: Final = 64
#: Results of a search whose memory is kept for the next one.
_KEPT: Final = 4096


class Block:
    """Bytes aligned to 64, as C asks for."""

    def __init__(self, ffi: Any, size: int) -> None:
        try:
            self._bytes = np.zeros(size + _ALIGN, np.uint8)
        except MemoryError:
            raise CacheMemoryError(f"no {size} bytes for a plan or its scratch") from None
        self.size = size
        start = -self._bytes.ctypes.data % _ALIGN
        self.pointer = ffi.cast("void *", self._bytes.ctypes.data + start)


@dataclass(frozen=True, eq=False)
class _Ready:
    """A search but for its mask and its queries: arguments of C, and where results go."""

    code: VectorCode
    affine: Affine | None
    stored: Stored
    size: tuple[int, int]
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    scores: F32
    rows: Rows
    kept: tuple[Any, ...]
    """What C reads and writes beside them."""


class _Desk(threading.local):
    """What one thread works with."""

    def __init__(self, ffi: Any) -> None:
        self.error = ffi.new("kv_error *")
        self.plan: tuple[VectorCode, Affine | None, Block] | None = None
        self.ready: _Ready | None = None


class NativeScorer:
    """One variant of the library. Several threads may search at once."""

    name = "native"

    def __init__(self, library: Library, variant: str) -> None:
        self.variant = variant
        self._library = library
        self._ffi = retrieval_interface()
        self._lib = self._ffi.dlopen(str(library.path))
        for name in dir(self._lib):
            if not hasattr(self._lib, name):
                raise UnavailableError(f"{library.path}: does not export {name}")
        found = self._lib.kv_retrieval_version()
        if found != self._lib.KV_RETRIEVAL_VERSION:
            raise UnavailableError(
                f"{library.path}: retrieval version {found}, this kvassay needs "
                f"{self._lib.KV_RETRIEVAL_VERSION}; build the library against its header"
            )
        self._search = self._lib.kv_retrieval_search
        self._types = {name: self._ffi.typeof(text) for name, text in _POINTERS.items()}
        self._desk = _Desk(self._ffi)

    def rotate(self, code: VectorCode, x: F32) -> F32:
        """x (n, dim) as (n, channels), unscaled."""
        y = np.empty((len(x), code.channels), np.float32)
        plan = self._plan(code, None)
        self._call(self._lib.kv_retrieval_rotate, plan, self._at(x), len(x), self._at(y))
        return y

    def encode(self, code: VectorCode, affine: Affine | None, x: F32) -> tuple[U8, F32]:
        """Codes (n, channels), one a byte, and scales (n,)."""
        codes = np.empty((len(x), code.channels), np.uint8)
        scales = np.empty(len(x), np.float32)
        plan = self._plan(code, affine)
        out = self._at(codes), self._at(scales)
        self._call(self._lib.kv_retrieval_encode, plan, self._at(x), len(x), *out)
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
        desk = self._desk
        ready = desk.ready
        if (
            ready is None
            or ready.stored is not stored
            or ready.code is not code
            or ready.affine is not affine
            or ready.size != (len(q), k)
        ):
            desk.ready = None  # frees what it keeps before as much is taken again
            ready = self._prepare(code, affine, stored, len(q), k)
        mask = self._ffi.NULL if allowed is None else self._at(allowed)
        done = self._search(*ready.before, mask, self._at(q), *ready.after)
        if done:
            check(self._library, done, desk.error)
        if len(q) * k > _KEPT:
            return ready.scores, ready.rows
        desk.ready = ready
        return ready.scores.copy(), ready.rows.copy()

    def _prepare(
        self, code: VectorCode, affine: Affine | None, stored: Stored, count: int, k: int
    ) -> _Ready:
        """To name everything to C takes as long as a search of a thousand vectors: once."""
        plan = self._plan(code, affine)
        scratch = self._scratch(plan, count)
        scores, rows = np.empty((count, k), np.float32), np.empty((count, k), np.int64)
        tiles = self._ffi.cast("uint8_t *", stored.tiles.ctypes.data)  # slabs may lie apart
        before = (plan.pointer, tiles, stored.tiles.strides[0], self._at(stored.scales))
        out = (self._at(scores), self._at(rows), scratch.pointer, scratch.size, self._desk.error)
        return _Ready(
            *(code, affine, stored, (count, k), (*before, stored.count), (count, k, *out)),
            *(scores, rows, (plan, scratch)),
        )

    def _at(self, array: NDArray[Any]) -> Any:
        """Its first byte, read-only or not; whoever calls keeps it alive."""
        return self._ffi.from_buffer(self._types[array.dtype.char], array)

    def _plan(self, code: VectorCode, affine: Affine | None) -> Block:
        """Tables, made once for each code and calibration in a row."""
        desk = self._desk
        if desk.plan is not None and desk.plan[0] is code and desk.plan[1] is affine:
            return desk.plan[2]
        spec = self._ffi.new("kv_retrieval_spec *", (code.dim, code.bits, code.seed))
        plan = Block(self._ffi, self._lib.kv_retrieval_plan_bytes(spec))
        null = self._ffi.NULL
        shift = self._at(affine.shift) if affine else null
        gain = self._at(affine.gain) if affine and affine.gain is not None else null
        done = self._lib.kv_retrieval_plan_init(
            spec, shift, gain, self.variant.encode(), plan.pointer, plan.size, desk.error
        )
        check(self._library, done, desk.error)
        desk.plan = (code, affine, plan)
        return plan

    def _scratch(self, plan: Block, queries: int) -> Block:
        return Block(self._ffi, self._lib.kv_retrieval_scratch_bytes(plan.pointer, queries))

    def _call(self, function: Any, plan: Block, *arguments: Any) -> None:
        scratch, error = self._scratch(plan, 1), self._desk.error
        done = function(plan.pointer, *arguments, scratch.pointer, scratch.size, error)
        check(self._library, done, error)


#: C arrays by numpy's letter; int64 is "l" or "q", as the platform's long has it.
_POINTERS: Final = {"f": "float[]", "B": "uint8_t[]", "l": "int64_t[]", "q": "int64_t[]"}


class NativeScorers:
    """The provider: the variants of the backend `native` that run on this CPU itself."""

    name = "native"

    def variants(self) -> Mapping[str, Availability]:
        """Every variant, best first; those that only an emulator runs are not offered."""
        return {
            name: state
            if state.status != "emulated"
            else Availability("unsupported-cpu", "an emulator runs its caches, not its scorer")
            for name, state in backend.variants().items()
        }

    def load(self, variant: str) -> NativeScorer:
        """The scorer of a variant that runs here; UnavailableError for others."""
        loaded = backend.load(variant)
        if not isinstance(loaded, LibraryBackend):
            raise UnavailableError(f"native, variant {variant!r}: its scorer needs this CPU")
        return NativeScorer(loaded.library, variant)


scorers: Final = NativeScorers()
