"""The pure kernels of a library, for the life cycle of `reference` to call."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvassay.protocol import FloatArray
from kvassay.spec import Identity, LayerSpec, Spec

from ..reference.encode import Means
from ..reference.kernels import Kernels
from ..reference.layer import LayerState, Rows
from . import memory
from .abi import Library
from .memory import PAGE_ALIGNMENT, Bytes


class LibraryKernels(Kernels):
    """Plans for the layers of a spec, and calls with them.

    Pages are read where they lie, 16-byte aligned. Scratch lives as long as a call, so that caches
    of one lineage may be used by different threads.
    """

    def __init__(self, spec: Spec, library: Library, variant: str, fields: Any) -> None:
        """`fields` gives the fields of a kv_layer_spec."""
        self._library = library
        self._lib = library.lib
        self._ffi = library.ffi
        self._new = partial(memory.new, library.ffi, constant=True)
        self._ran = 0
        self._plans = {
            layer: self._plan(fields(layer), variant) for layer in dict.fromkeys(spec.layer_specs)
        }

    def _plan(self, fields: dict[str, int | float], variant: str) -> Bytes:
        spec = self._new("kv_layer_spec *", fields)
        size = memory.new(self._ffi, "uint64_t *")
        call = self._library.call
        call(self._lib.kv_plan_bytes, spec, size)
        plan = memory.aligned(size[0], "the plan")
        name = self._new("char[]", variant.encode())
        call(self._lib.kv_plan_init, spec, name, self._at(plan), size[0])
        memory.read_only(plan)
        return plan

    def _at(self, array: NDArray[Any]) -> Any:
        return self._ffi.from_buffer(array)

    @property
    def table_bytes(self) -> int:
        """Bytes of the plans."""
        return sum(plan.nbytes for plan in self._plans.values())

    @property
    def ran(self) -> tuple[str, ...]:
        """Names of the variants whose kernels said that they ran."""
        return tuple(name for i, name in enumerate(self._library.variants) if self._ran >> i & 1)

    def seal(
        self,
        spec: LayerSpec,
        means: Means,
        keys: NDArray[np.float16],
        values: NDArray[np.float16],
        layer: int,
        token_start: int,
        identity: Identity | None,
    ) -> bytes:
        """The page of keys and values (kv_heads, page_tokens, head_dim)."""
        plan = self._at(self._plans[spec])
        page = memory.zeroed(self._lib.kv_plan_page_bytes(plan), "the page")
        belongs = identity or Identity()
        hashes = (belongs.model_hash, belongs.tokenizer_hash, belongs.runtime_hash)
        number = self._new("kv_page_id *", (*hashes, token_start, layer))
        owners: list[Any] = []
        rows = [self._rows(np.ascontiguousarray(half), owners) for half in (keys, values)]
        scratch = self._scratch(plan)
        self._library.call(
            self._lib.kv_page_encode,
            *(plan, number, self._pointer(rows[0]), self._pointer(rows[1])),
            *(self._halves(means.keys, owners), self._halves(means.values, owners)),
            *(self._ffi.from_buffer(page), len(page), self._at(scratch), scratch.nbytes),
        )
        self._note(scratch)
        return bytes(page)

    def attend(self, state: LayerState, q: FloatArray) -> tuple[FloatArray, int]:
        """Outputs for q (n, query_heads, head_dim), and how many heads of pages there were."""
        out: FloatArray = memory.empty(q.shape, np.float32, "out")
        self._compute(self._lib.kv_attend, state, q, (len(q), self._floats(out)))
        return out, len(state.pages) * state.spec.kv_heads

    def scores(self, state: LayerState, q: FloatArray) -> tuple[FloatArray, int]:
        """Logits (query_heads, tokens) of q (query_heads, head_dim), and heads of pages."""
        shape = (state.spec.query_heads, state.length)
        out: FloatArray = memory.empty(shape, np.float32, "out")
        self._compute(self._lib.kv_scores, state, q, (self._floats(out), out.size))
        return out, len(state.pages) * state.spec.kv_heads

    def _compute(
        self, function: Any, state: LayerState, q: FloatArray, result: tuple[Any, Any]
    ) -> None:
        plan = self._at(self._plans[state.spec])
        owners: list[Any] = []
        stored = self._state(state, owners)
        scratch = self._scratch(plan)
        room = (self._at(scratch), scratch.nbytes, self._ffi.NULL)
        queries = memory.given(np.ascontiguousarray(q), "q")
        self._library.call(function, plan, stored, self._floats(queries), *result, *room)
        self._note(scratch)

    def _state(self, state: LayerState, owners: list[Any]) -> Any:
        """A kv_state; `owners` keeps what it points to."""
        held = (memory.given(bytes(page), "a page", PAGE_ALIGNMENT) for page in state.pages)
        pages = [self._ffi.from_buffer(page) for page in held]
        owners += pages
        numbers = self._new("const void *[]", pages)
        owners.append(numbers)
        halves = ((rows, stream) for rows in (state.sinks, state.residual) for stream in (0, 1))
        rows = [self._rows(_stream(rows, stream), owners, rows.used) for rows, stream in halves]
        return self._new(
            "kv_state *",
            (
                *(state.length, numbers, state.retired, len(pages), *rows),
                *(self._halves(mean, owners) for mean in (state.means.keys, state.means.values)),
            ),
        )

    def _rows(
        self, data: NDArray[np.float16], owners: list[Any], tokens: int | None = None
    ) -> tuple[Any, int, int]:
        """The fields of a kv_rows over (kv_heads, capacity, head_dim)."""
        _, capacity, width = data.shape
        if not (capacity if tokens is None else tokens):
            return self._ffi.NULL, width, capacity * width
        return self._halves(data, owners), width, capacity * width

    def _pointer(self, rows: tuple[Any, int, int]) -> Any:
        return self._new("kv_rows *", rows)

    def _halves(self, data: NDArray[np.float16] | None, owners: list[Any]) -> Any:
        if data is None:
            return self._ffi.NULL
        rows = memory.given(data, "fp16 rows")
        pointer = self._ffi.cast("uint16_t *", self._at(rows))
        owners += (rows, pointer)
        return pointer

    def _floats(self, array: FloatArray) -> Any:
        return self._ffi.from_buffer("float *", array)

    def _scratch(self, plan: Any) -> Bytes:
        scratch = memory.aligned(self._lib.kv_plan_scratch_bytes(plan, 1), "scratch")
        self._library.watch(self._lib.kv_scratch_init, self._at(scratch), scratch.nbytes)
        return scratch

    def _note(self, scratch: Bytes) -> None:
        self._ran |= self._lib.kv_scratch_ran(self._at(scratch))


def _stream(rows: Rows, stream: int) -> NDArray[np.float16]:
    return rows.values if stream else rows.keys
