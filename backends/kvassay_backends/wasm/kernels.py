"""The pure kernels of a module, around which the life cycle is run here.

Plans and sealed pages stay in linear memory; fp16 tokens, which are few, are copied in at each
call.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.backend.fences import active
from kvassay.protocol import FloatArray
from kvassay.spec import Identity, LayerSpec, Spec

from ..lifecycle import Kernels, LayerState, Means, Page, ReferenceCache
from ..native.backend import layer_fields
from .faults import ModuleFault
from .instance import Instance
from .layout import layout
from .memory import PAGE

_LINE: Final = 64


class ResidentPage:
    """A sealed page in linear memory, given back with its last holder."""

    def __init__(self, instance: Instance, size: int) -> None:
        self._instance = instance
        self.size = size
        self.address = instance.take(size, "the page")
        weakref.finalize(self, _give_back, instance, self.address, size).atexit = False

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return self._instance.read(self.address, self.size)


class _Room:
    """Parts of linear memory for one call: one after the other, or each between fences."""

    def __init__(self, instance: Instance, start: int) -> None:
        self._instance = instance
        self._next = start
        self._taken: list[tuple[int, int]] = []

    def put(self, data: bytes, what: str = "what it reads") -> int:
        """The address at which the bytes now are."""
        address = self.leave(len(data), what)
        self._instance.put(address, np.frombuffer(data, np.uint8))
        return address

    def leave(self, size: int, what: str) -> int:
        """The address of bytes for the module to fill."""
        if active() is not None:
            address = self._instance.take(size, what)
            self._taken.append((address, size))
            return address
        address, self._next = self._next, self._next + _whole(size)
        return address

    def close(self) -> None:
        """Give back what was taken one by one."""
        _forget(self._instance, self._taken)


class ModuleKernels(Kernels):
    """Plans in linear memory for the layers of a spec, and calls with them."""

    def __init__(self, spec: Spec, instance: Instance, variant: str) -> None:
        self.instance = instance
        self._ran = 0
        self._sizes: dict[LayerSpec, int] = {}
        self._plans: dict[LayerSpec, int] = {}
        for layer in dict.fromkeys(spec.layer_specs):
            self._make_plan(layer, variant)
        self._free = weakref.finalize(
            self, _forget, instance, [(self._plans[x], self._sizes[x]) for x in self._plans]
        )
        self._free.atexit = False

    def _make_plan(self, spec: LayerSpec, variant: str) -> None:
        blob = layout("kv_layer_spec").pack(layer_fields(spec))
        with self._room(2 * _LINE, len(blob), len(variant) + 1) as room:
            at, name = room.put(blob), room.put(variant.encode() + b"\0")
            size_at = room.leave(8, "the size of a plan")
            self.instance.check("kv_plan_bytes", at, size_at)
            (size,) = struct.unpack("<Q", self.instance.read(size_at, 8))
            plan = self.instance.take(size, "the plan")
            self._plans[spec], self._sizes[spec] = plan, size
            self.instance.check("kv_plan_init", at, name, plan, size)
            self.instance.fenced.freeze(plan)

    @contextmanager
    def _room(self, *sizes: int) -> Iterator[_Room]:
        with self.instance.room(sum(map(_whole, sizes)) + _LINE) as start:
            room = _Room(self.instance, _whole(start))
            try:
                yield room
            finally:
                room.close()

    @property
    def table_bytes(self) -> int:
        """Bytes of the plans."""
        return sum(self._sizes.values())

    @property
    def ran(self) -> tuple[str, ...]:
        """Names of the variants whose kernels said that they ran."""
        return tuple(name for i, name in enumerate(self.instance.variants) if self._ran >> i & 1)

    def hold(self, page: bytes) -> Page:
        """A page of a dump, in linear memory."""
        held = ResidentPage(self.instance, len(page))
        self.instance.put(held.address, np.frombuffer(page, np.uint8))
        return held

    def seal(
        self,
        spec: LayerSpec,
        means: Means,
        keys: NDArray[np.float16],
        values: NDArray[np.float16],
        layer: int,
        token_start: int,
        identity: Identity | None,
    ) -> Page:
        """The page of keys and values (kv_heads, page_tokens, head_dim)."""
        plan, belongs = self._plans[spec], identity or Identity()
        page = ResidentPage(self.instance, self.instance.call("kv_plan_page_bytes", plan))
        number = {
            **{"model": belongs.model_hash, "tokenizer": belongs.tokenizer_hash},
            **{"runtime": belongs.runtime_hash, "token_start": token_start, "layer": layer},
        }
        blob = layout("kv_page_id").pack(number)
        halves = [half for half in (means.keys, means.values) if half is not None]
        sizes = [len(blob), keys.nbytes, values.nbytes, *(half.nbytes for half in halves)]
        scratch = self._scratch_bytes(plan)
        with self._room(*sizes, 2 * _LINE, scratch) as room:
            at = room.put(blob)
            rows = [room.put(_rows(room, data, data.shape[1])) for data in (keys, values)]
            frozen = [0 if m is None else room.put(m.tobytes()) for m in (means.keys, means.values)]
            work = self._start(room, scratch)
            made = (page.address, page.size, work, scratch)
            self.instance.check("kv_page_encode", plan, at, *rows, *frozen, *made)
            self.instance.fenced.freeze(page.address)
            self._note(work)
        return page

    def attend(self, state: LayerState, q: FloatArray) -> tuple[FloatArray, int]:
        """Outputs for q (n, query_heads, head_dim), and how many heads of pages there were."""
        out: FloatArray = np.empty(q.shape, np.float32)
        self._compute("kv_attend", state, q, out, lambda at: (len(q), at))
        return out, len(state.pages) * state.spec.kv_heads

    def scores(self, state: LayerState, q: FloatArray) -> tuple[FloatArray, int]:
        """Logits (query_heads, tokens) of q (query_heads, head_dim), and heads of pages."""
        out: FloatArray = np.empty((state.spec.query_heads, state.length), np.float32)
        self._compute("kv_scores", state, q, out, lambda at: (at, out.size))
        return out, len(state.pages) * state.spec.kv_heads

    def _compute(
        self, function: str, state: LayerState, q: FloatArray, out: FloatArray, result: Any
    ) -> None:
        plan = self._plans[state.spec]
        scratch = self._scratch_bytes(plan)
        halves = [half for half in (state.means.keys, state.means.values) if half is not None]
        stored = [rows.bytes_of(rows.used) for rows in (state.sinks, state.residual)]
        fixed = (4 * len(state.pages), layout("kv_state").size, q.nbytes, out.nbytes, scratch)
        # Each of the eight parts that rows and means are may start on a line of its own.
        sizes = (*fixed, *stored, *(half.nbytes for half in halves), 8 * _LINE)
        with self._room(*sizes) as room:
            where = room.put(layout("kv_state").pack(self._state(room, state)))
            queries = room.put(np.ascontiguousarray(q).tobytes(), "q")
            answer = room.leave(out.nbytes, "out")
            work = self._start(room, scratch)
            self.instance.check(function, plan, where, queries, *result(answer), work, scratch, 0)
            self._note(work)
            self.instance.memory.read_array(answer, out)

    def _state(self, room: _Room, state: LayerState) -> dict[str, Any]:
        """The fields of a kv_state, what it points to being put into the room."""
        addresses = [page.address for page in state.pages if isinstance(page, ResidentPage)]
        fields: dict[str, Any] = {
            "length": state.length,
            "pages": room.put(struct.pack(f"<{len(addresses)}I", *addresses)),
            "first_page": state.retired,
            "page_count": len(addresses),
        }
        for name, rows in (("sink", state.sinks), ("residual", state.residual)):
            fields[f"{name}_keys"] = _rows(room, rows.keys, rows.used)
            fields[f"{name}_values"] = _rows(room, rows.values, rows.used)
        for name, mean in (("key_mean", state.means.keys), ("value_mean", state.means.values)):
            fields[name] = 0 if mean is None else room.put(mean.tobytes())
        return fields

    def _scratch_bytes(self, plan: int) -> int:
        return self.instance.call("kv_plan_scratch_bytes", plan, 1)

    def _start(self, room: _Room, size: int) -> int:
        scratch = room.leave(size, "scratch")
        self.instance.call("kv_scratch_init", scratch, size)
        return scratch

    def _note(self, scratch: int) -> None:
        self._ran |= self.instance.call("kv_scratch_ran", scratch)


class ModuleKernelCache(ReferenceCache):
    """Bills the linear memory as well: what of it is in use for nothing else is reserved."""

    @property
    def nbytes(self) -> dict[str, int]:
        parts = super().nbytes
        kernels = self._lineage.kernels
        assert isinstance(kernels, ModuleKernels)
        use = kernels.instance.use
        parts["staging"] += kernels.instance.staging
        parts["reserved"] += max(0, use.pages * PAGE - (use.used or sum(parts.values())))
        return parts


def _rows(room: _Room, data: NDArray[np.float16], used: int) -> bytes:
    """A kv_rows over the first `used` tokens of (kv_heads, capacity, head_dim)."""
    width = data.shape[2]
    at = room.put(np.ascontiguousarray(data[:, :used]).tobytes()) if used else 0
    strides = {"token_stride": width, "head_stride": used * width}
    return layout("kv_rows").pack({"data": at, **strides})


def _whole(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _give_back(instance: Instance, address: int, size: int) -> None:
    """Nothing is left to do in an instance that ended."""
    try:
        instance.give_back(address, size)
    except ModuleFault:
        return


def _forget(instance: Instance, parts: list[tuple[int, int]]) -> None:
    for address, size in parts:
        _give_back(instance, address, size)
