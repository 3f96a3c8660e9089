"""Stored vectors in the C library: kvassay_retrieval.h, driven through cffi."""

from __future__ import annotations

from collections.abc import Mapping
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


class NativeScorer:
    """One variant of the library."""

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
        self._error = self._ffi.new("kv_error *")
        self._types = {name: self._ffi.typeof(text) for name, text in _POINTERS.items()}
        self._made: tuple[VectorCode, Affine | None, Block] | None = None
        self._read: tuple[Stored, tuple[Any, ...]] | None = None
        self._scratch: Block | None = None

    def rotate(self, code: VectorCode, x: F32) -> F32:
        """x (n, dim) as (n, channels), unscaled."""
        y = np.empty((len(x), code.channels), np.float32)
        plan = self._plan(code, None)
        self._call("rotate", plan, 1, plan.pointer, self._at(x), len(x), self._at(y))
        return y

    def encode(self, code: VectorCode, affine: Affine | None, x: F32) -> tuple[U8, F32]:
        """Codes (n, channels), one a byte, and scales (n,)."""
        codes = np.empty((len(x), code.channels), np.uint8)
        scales = np.empty(len(x), np.float32)
        plan = self._plan(code, affine)
        self._call(
            *("encode", plan, 1, plan.pointer, self._at(x), len(x)),
            *(self._at(codes), self._at(scales)),
        )
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
        mask = self._ffi.NULL if allowed is None else self._at(allowed)
        plan = self._plan(code, affine)
        self._call(
            *("search", plan, len(q), plan.pointer),
            *(*self._stored(stored), mask, self._at(q), len(q), k),
            *(self._at(scores), self._at(rows)),
        )
        return scores, rows

    def _at(self, array: NDArray[Any]) -> Any:
        """Its first byte, read-only or not; whoever calls keeps it alive."""
        return self._ffi.from_buffer(self._types[array.dtype.char], array)

    def _stored(self, stored: Stored) -> tuple[Any, ...]:
        """The arguments that say what is read, made once for as long as it stays the same."""
        if self._read is None or self._read[0] is not stored:
            tiles = self._ffi.cast("uint8_t *", stored.tiles.ctypes.data)  # slabs may lie apart
            scales = self._at(stored.scales)
            self._read = (stored, (tiles, stored.tiles.strides[0], scales, stored.count))
        return self._read[1]

    def _plan(self, code: VectorCode, affine: Affine | None) -> Block:
        """Tables, made once for each code and calibration in a row."""
        if self._made is not None and self._made[0] is code and self._made[1] is affine:
            return self._made[2]
        spec = self._ffi.new("kv_retrieval_spec *", (code.dim, code.bits, code.seed))
        plan = Block(self._ffi, self._lib.kv_retrieval_plan_bytes(spec))
        null = self._ffi.NULL
        shift, gain = (self._at(affine.shift), self._at(affine.gain)) if affine else (null, null)
        done = self._lib.kv_retrieval_plan_init(
            spec, shift, gain, self.variant.encode(), plan.pointer, plan.size, self._error
        )
        check(self._library, done, self._error)
        self._made = (code, affine, plan)
        return plan

    def _call(self, name: str, plan: Block, queries: int, *arguments: Any) -> None:
        needed = self._lib.kv_retrieval_scratch_bytes(plan.pointer, queries)
        if self._scratch is None or self._scratch.size < needed:
            self._scratch = Block(self._ffi, needed)
        function = getattr(self._lib, f"kv_retrieval_{name}")
        done = function(*arguments, self._scratch.pointer, self._scratch.size, self._error)
        check(self._library, done, self._error)


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
