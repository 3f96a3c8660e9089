"""A dump in a file is used where it lies: mapped into memory, attended by the pure kernels."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_tools import NATIVE, add, make_queries, make_spec, make_tokens

from kvassay import Spec
from kvassay_backends.native.backend import LibraryBackend, layer_fields
from kvassay_suites.oracle import read_dump

SPECS = {
    "turbo": make_spec(window=8, sinks=2),
    "frozen": make_spec(window=8, sinks=2, key_centre="frozen"),
    "fp16": make_spec(keys="fp16", values="fp16", key_centre="none", value_centre="none"),
    "kivi": make_spec(keys="kivi:2", values="kivi:4", key_centre="none", value_centre="none"),
}


class Mapped:
    """One layer of a mapped dump as a kv_state: every pointer leads into the file."""

    def __init__(self, spec: Spec, data: mmap.mmap) -> None:
        assert isinstance(NATIVE, LibraryBackend)
        self.library, self.spec = NATIVE.library, spec
        self.ffi, self.lib = self.library.ffi, self.library.lib
        self.base = self.ffi.cast("uint8_t *", self.ffi.from_buffer(data))
        layer = read_dump(data[:]).layers[0]
        offsets = layer.page_offsets
        assert all(offset % 64 == 0 for offset in offsets)
        self.pages = self.ffi.new("const void *[]", [self.base + offset for offset in offsets])
        fields: dict[str, Any] = {
            "length": layer.record["length"],
            "pages": self.pages,
            "first_page": layer.record["first_page"],
            "page_count": len(offsets),
        }
        for name, section in layer.sections.items():
            at = self.ffi.cast("uint16_t *", self.base + section.offset)
            if name.endswith("mean"):
                fields[name.replace(" ", "_")] = at
            else:
                heads, tokens, d = section.shape
                assert heads == spec.kv_heads
                rows = {"data": at, "token_stride": d, "head_stride": tokens * d}
                fields[name.replace(" ", "_")] = rows
        self.state = self.ffi.new("kv_state *", fields)

    def attend(self, q: np.ndarray[Any, np.dtype[np.float32]]) -> bytes:
        """The bits of attention of several queries."""
        spec = self.ffi.new("kv_layer_spec *", layer_fields(self.spec.layer(0)))
        plan, scratch = self._room(spec)
        out = np.empty_like(q)
        error = self.library.new_error()
        code = self.lib.kv_attend(
            *(plan[0], self.state, self.ffi.from_buffer("float *", q), len(q)),
            *(self.ffi.from_buffer("float *", out), scratch[0], scratch[1], self.ffi.NULL, error),
        )
        assert code == self.lib.KV_OK, self.library.text(error.message)
        return out.tobytes()

    def _room(self, spec: Any) -> tuple[tuple[Any, int], tuple[Any, int]]:
        size, error = self.ffi.new("uint64_t *"), self.library.new_error()
        assert self.lib.kv_plan_bytes(spec, size, error) == self.lib.KV_OK
        plan = self._aligned(size[0])
        assert self.lib.kv_plan_init(spec, b"scalar", plan, size[0], error) == self.lib.KV_OK
        needed = self.lib.kv_plan_scratch_bytes(plan, 1)
        scratch = self._aligned(needed)
        self.lib.kv_scratch_init(scratch, needed)
        return (plan, size[0]), (scratch, needed)

    def _aligned(self, size: int) -> Any:
        memory = np.empty(size + 64, np.uint8)
        self.__dict__.setdefault("memory", []).append(memory)
        return self.ffi.cast("void *", memory.ctypes.data + -memory.ctypes.data % 64)


@pytest.mark.parametrize("name", SPECS)
def test_a_mapped_dump_is_attended_in_place(name: str, tmp_path: Path) -> None:
    spec = SPECS[name]
    q = make_queries(spec, 3)
    path = tmp_path / "cache.kvdm"
    with NATIVE.prepare(spec) as cache:
        add(cache, make_tokens(spec, 75))
        cache.dump(path)
        expected = cache.attend(0, q).tobytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        mapped = Mapped(spec, data)
        assert mapped.attend(q) == expected
        with NATIVE.restore(spec, data[:]) as back:
            assert back.attend(0, q).tobytes() == expected
        del mapped
