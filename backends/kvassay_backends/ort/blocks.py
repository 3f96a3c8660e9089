"""The functions of kvassay_block.h: one layer of one sequence in one block of bytes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from kvassay.errors import UnavailableError
from kvassay.page.dump import HalfArray, LayerDump, first_live_page
from kvassay.spec import LayerSpec

from ..native.abi import Library, declarations, interface
from ..native.build_info import BLOCK_HEADER_NAME, LIBRARY_DIR

ByteArray = NDArray[np.uint8]


class BlockLibrary:
    """The block functions of a library, beside those of kvassay.h."""

    def __init__(self, library: Library) -> None:
        header = LIBRARY_DIR / BLOCK_HEADER_NAME
        if not header.is_file():
            raise UnavailableError(f"no {header}; run: python backends/hatch_build.py")
        self.library = library
        self.ffi: Any = cffi.FFI()
        self.ffi.include(interface())
        self.ffi.cdef(declarations(header.read_text(encoding="utf-8")))
        self.lib: Any = self.ffi.dlopen(str(library.path))

    def call(self, function: Any, *arguments: Any) -> None:
        """A function whose last argument is a kv_error; raises what it reports."""
        self.library.call(function, *arguments)


class Blocks:
    """Blocks of one layer: a plan made from its spec, and the identity that they carry.

    `layer` is a `kv_layer_spec *`, `page_id` a `kv_page_id *`.
    """

    def __init__(self, blocks: BlockLibrary, spec: LayerSpec, layer: Any, page_id: Any) -> None:
        self._blocks = blocks
        self._spec = spec
        self._layer = layer
        self._id = page_id

    @cached_property
    def _plan(self) -> Any:
        library, ffi = self._blocks.library, self._blocks.ffi
        size = ffi.new("uint64_t *")
        self._blocks.call(library.lib.kv_plan_bytes, self._layer, size)
        self._plan_memory = aligned(size[0])
        plan = ffi.from_buffer(self._plan_memory)
        self._blocks.call(library.lib.kv_plan_init, self._layer, ffi.NULL, plan, size[0])
        return plan

    @property
    def plan_bytes(self) -> int:
        """Bytes of the plan."""
        return len(self._plan_memory) if self._plan else 0

    def pages_for(self, tokens: int) -> int:
        """Pages that a cache of this many tokens has."""
        return self._spec.sealed(tokens)

    def scratch_bytes(self, block: ByteArray, threads: int) -> int:
        """Working memory that a node keeps for runs over this block."""
        return int(self._blocks.lib.kv_block_scratch_bytes(self._plan, len(block), threads))

    def empty(self, pages: int) -> ByteArray:
        """A block of zeros with room for `pages` pages."""
        size = self._blocks.ffi.new("uint64_t *")
        tokens = self._spec.sinks + self._spec.window + pages * self._spec.page_tokens
        self._blocks.call(self._blocks.lib.kv_block_bytes, self._plan, tokens, size)
        return aligned(size[0])

    def _given(self, block: ByteArray) -> tuple[Any, ...]:
        return self._plan, self._id, self._blocks.ffi.from_buffer(block), len(block)

    def length(self, block: ByteArray) -> int:
        """Tokens in a block."""
        out = self._blocks.ffi.new("uint64_t *")
        self._blocks.call(self._blocks.lib.kv_block_length, *self._given(block), out)
        return int(out[0])

    def reaches(self, block: ByteArray, n: int) -> None:
        """Raise TruncateError or SpanError if the block cannot be cut to n tokens."""
        self._blocks.call(self._blocks.lib.kv_block_reaches, *self._given(block), n)

    def truncate(self, block: ByteArray, n: int) -> None:
        """Cut to n tokens, which the block must reach."""
        self._blocks.call(self._blocks.lib.kv_block_truncate, *self._given(block), n)

    def _state(self, block: ByteArray) -> tuple[Any, Any]:
        """A kv_state and the page pointers it refers to."""
        ffi = self._blocks.ffi
        room = self._spec.sealed(self.length(block)) or 1
        pages, state = ffi.new("const void *[]", room), ffi.new("kv_state *")
        self._blocks.call(self._blocks.lib.kv_block_state, *self._given(block), pages, room, state)
        return state, pages

    def held_pages(self, block: ByteArray) -> int:
        """Pages in the block, those that the next append retires included."""
        return int(self._state(block)[0].page_count)

    def read(self, block: ByteArray) -> LayerDump:
        """What the block holds, live pages only, copied."""
        state, _pages = self._state(block)
        first = first_live_page(self._spec, state.length)
        sinks = min(state.length, self._spec.sinks)
        sealed = state.first_page + state.page_count
        residual = state.length - sinks - sealed * self._spec.page_tokens
        size = self._blocks.library.lib.kv_plan_page_bytes(self._plan)
        live = range(first - state.first_page, state.page_count)
        return LayerDump(
            length=state.length,
            first_page=first,
            key_mean=self._mean(state.key_mean),
            value_mean=self._mean(state.value_mean),
            sink_keys=self._rows(state.sink_keys, sinks),
            sink_values=self._rows(state.sink_values, sinks),
            residual_keys=self._rows(state.residual_keys, residual),
            residual_values=self._rows(state.residual_values, residual),
            pages=[bytes(self._blocks.ffi.buffer(state.pages[i], size)) for i in live],
        )

    def _mean(self, pointer: Any) -> HalfArray | None:
        if pointer == self._blocks.ffi.NULL:
            return None
        shape = (self._spec.kv_heads, self._spec.head_dim)
        return self._halves(pointer, shape[0] * shape[1]).reshape(shape)

    def _rows(self, rows: Any, tokens: int) -> HalfArray:
        heads, d = self._spec.kv_heads, self._spec.head_dim
        out: HalfArray = np.empty((heads, tokens, d), np.float16)
        for head in range(heads if tokens else 0):
            start = rows.data + head * rows.head_stride
            out[head] = self._halves(start, tokens * d).reshape(tokens, d)
        return out

    def _halves(self, pointer: Any, count: int) -> HalfArray:
        halves: HalfArray = np.frombuffer(self._blocks.ffi.buffer(pointer, 2 * count), "<f2").copy()
        return halves

    def moved(self, block: ByteArray, pages: int) -> ByteArray:
        """The same state in a new block with room for `pages` pages."""
        state, _pointers = self._state(block)
        return self._loaded(state, pages)

    def filled(self, dump: LayerDump, pages: int) -> ByteArray:
        """A block with the state of a checked dump and room for `pages` pages."""
        ffi, kept = self._blocks.ffi, []

        def pointer(array: HalfArray | None) -> Any:
            if array is None:
                return ffi.NULL
            kept.append(np.ascontiguousarray(array, "<f2"))
            return ffi.cast("uint16_t *", ffi.from_buffer(kept[-1]))

        def rows(array: HalfArray) -> dict[str, Any]:
            d = self._spec.head_dim
            strides = {"token_stride": d, "head_stride": array.shape[1] * d}
            return {"data": pointer(array), **strides}

        held = [ffi.from_buffer(page) for page in dump.pages]
        pointers = ffi.new("const void *[]", held or [ffi.NULL])
        state = ffi.new(
            "kv_state *",
            {
                "length": dump.length,
                "pages": pointers,
                "first_page": dump.first_page,
                "page_count": len(dump.pages),
                "sink_keys": rows(dump.sink_keys),
                "sink_values": rows(dump.sink_values),
                "residual_keys": rows(dump.residual_keys),
                "residual_values": rows(dump.residual_values),
                "key_mean": pointer(dump.key_mean),
                "value_mean": pointer(dump.value_mean),
            },
        )
        return self._loaded(state, pages)

    def _loaded(self, state: Any, pages: int) -> ByteArray:
        block = self.empty(pages)
        self._blocks.call(self._blocks.lib.kv_block_load, *self._given(block), state)
        return block


def aligned(size: int) -> ByteArray:
    """Zeroed bytes at a multiple of 64; pages of memory are taken when they are first written."""
    memory: ByteArray = np.zeros(size + 63, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    return memory[start : start + size]
