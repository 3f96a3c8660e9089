"""llama.cpp: flash attention and cache writes of ggml's CPU backend, through its C interface."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import cffi
import numpy as np
from numpy.typing import NDArray

from .cases import Case
from .inputs import Inputs
from .protocol import NotMeasured, Peer, Prepared, Result, installed

#: Numbers of enum ggml_type, and how far results may be off: fp16 values are summed in fp16.
TYPES: Final = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}
TOLERANCE: Final = {"f32": 1e-3, "f16": 5e-2, "q8_0": 5e-2, "q4_0": 0.25}
_I64: Final = 27
_TENSORS: Final = 32

_DECLARATIONS: Final = """
struct ggml_init_params { size_t mem_size; void *mem_buffer; bool no_alloc; };
void *ggml_init(struct ggml_init_params params);
void ggml_free(void *ctx);
size_t ggml_tensor_overhead(void);
size_t ggml_graph_overhead(void);
size_t ggml_nbytes(const void *tensor);
void *ggml_get_data(const void *tensor);
void *ggml_new_tensor_2d(void *ctx, int type, int64_t ne0, int64_t ne1);
void *ggml_reshape_3d(void *ctx, void *a, int64_t ne0, int64_t ne1, int64_t ne2);
void *ggml_permute(void *ctx, void *a, int axis0, int axis1, int axis2, int axis3);
void *ggml_set_rows(void *ctx, void *a, void *b, void *c);
void *ggml_flash_attn_ext(void *ctx, void *q, void *k, void *v, void *mask, float scale,
                          float max_bias, float logit_softcap);
void *ggml_new_graph(void *ctx);
void ggml_build_forward_expand(void *graph, void *tensor);
size_t ggml_quantize_chunk(int type, const float *src, void *dst, int64_t start, int64_t nrows,
                           int64_t n_per_row, const float *imatrix);
size_t ggml_row_size(int type, int64_t ne);
void *ggml_backend_alloc_ctx_tensors(void *ctx, void *backend);
void ggml_backend_buffer_free(void *buffer);
int ggml_backend_graph_compute(void *backend, void *graph);
void ggml_backend_free(void *backend);
void *ggml_backend_cpu_init(void);
void ggml_backend_cpu_set_n_threads(void *backend, int threads);
"""


@cache
def _library() -> tuple[Any, Any]:
    """The cffi interface, and ggml's CPU backend with what it is linked to."""
    found = find_spec("llama_cpp")  # not imported: that would load all of llama.cpp
    if found is None or found.origin is None:
        raise NotMeasured("llama-cpp-python is not installed")
    folder = Path(found.origin).parent / "lib"
    files = sorted(folder.glob("libggml-cpu.*"))
    if not files:
        raise NotMeasured(f"llama-cpp-python: no libggml-cpu in {folder}")
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    return ffi, ffi.dlopen(str(files[0]))


class _Graph(Prepared):
    """K and V, token-major as llama.cpp stores them, and the tensors a graph works on."""

    def __init__(self, case: Case, type_: str, threads: int) -> None:
        self.ffi, self.lib = ffi, lib = _library()
        self.case, self.type = case, TYPES[type_]
        self.row = case.kv_heads * case.head_dim
        size = _TENSORS * lib.ggml_tensor_overhead() + 2 * lib.ggml_graph_overhead()
        parameters = {"mem_size": size, "mem_buffer": ffi.NULL, "no_alloc": True}
        self.context = lib.ggml_init(ffi.new("struct ggml_init_params *", parameters)[0])
        self.backend = lib.ggml_backend_cpu_init()
        lib.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.keys, self.values = (self.tensor(self.type, case.tokens, self.row) for _ in "kv")
        self.bytes = lib.ggml_nbytes(self.keys) + lib.ggml_nbytes(self.values)

    def tensor(self, type_: int, rows: int, row: int) -> Any:
        return self.lib.ggml_new_tensor_2d(self.context, type_, row, rows)

    def graph(self, *results: Any) -> Any:
        made = self.lib.ggml_new_graph(self.context)
        for result in results:
            self.lib.ggml_build_forward_expand(made, result)
        return made

    def attention(self, scale: float | None = None) -> Any:
        """Attention over the whole cache, asked for as llama.cpp does; scale 1/sqrt(d) if None."""
        lib, case, heads = self.lib, self.case, self.by_head
        self.q = self.tensor(TYPES["f32"], case.queries, case.query_heads * case.head_dim)
        self.mask = self.ffi.NULL
        if case.queries > 1:
            self.mask = self.tensor(TYPES["f16"], case.queries, case.tokens)
        return lib.ggml_flash_attn_ext(
            self.context,
            heads(self.q, case.query_heads, case.queries),
            heads(self.keys, case.kv_heads, case.tokens),
            heads(self.values, case.kv_heads, case.tokens),
            self.mask,
            case.head_dim**-0.5 if scale is None else scale,
            0.0,
            0.0,
        )

    def by_head(self, tensor: Any, heads: int, rows: int) -> Any:
        """A view of (rows, heads, d) as (heads, rows, d)."""
        split = self.lib.ggml_reshape_3d(self.context, tensor, self.case.head_dim, heads, rows)
        return self.lib.ggml_permute(self.context, split, 0, 2, 1, 3)

    def allocate(self) -> None:
        """Give every tensor its memory, until this object goes."""
        lib = self.lib
        buffer = lib.ggml_backend_alloc_ctx_tensors(self.context, self.backend)
        if buffer == self.ffi.NULL:
            raise NotMeasured("ggml could not allocate its tensors")
        self.free = weakref.finalize(self, _free, lib, buffer, self.backend, self.context)

    def data(self, tensor: Any, dtype: Any) -> NDArray[Any]:
        """The memory of a tensor as a flat array."""
        size = self.lib.ggml_nbytes(tensor)
        return np.frombuffer(self.ffi.buffer(self.lib.ggml_get_data(tensor), size), dtype)

    def set_queries(self, inputs: Inputs) -> None:
        """Fill in the queries and, for several, the causal mask."""
        self.data(self.q, np.float32)[:] = inputs.q.ravel()
        if self.mask != self.ffi.NULL:
            places = np.arange(self.case.tokens)
            hidden = places > places[-self.case.queries :, None]
            self.data(self.mask, np.float16)[:] = np.where(hidden, -np.inf, 0).ravel()

    def compute(self, graph: Any) -> None:
        status = self.lib.ggml_backend_graph_compute(self.backend, graph)
        if status != 0:
            raise NotMeasured(f"ggml_backend_graph_compute returned {status}")

    def attended(self, out: Any) -> Result:
        case = self.case
        shape = (case.queries, case.query_heads, case.head_dim)
        return self.data(out, np.float32).reshape(shape).copy()


def _free(lib: Any, buffer: Any, backend: Any, context: Any) -> None:
    lib.ggml_backend_buffer_free(buffer)
    lib.ggml_backend_free(backend)
    lib.ggml_free(context)


class _Attention(_Graph):
    def __init__(self, case: Case, type_: str, inputs: Inputs, threads: int) -> None:
        super().__init__(case, type_, threads)
        self._out = self.attention()
        self._graph = self.graph(self._out)
        self.allocate()
        self.set_queries(inputs)
        for tensor, rows in ((self.keys, inputs.keys), (self.values, inputs.values)):
            source = self.ffi.from_buffer("float *", rows)
            target = self.lib.ggml_get_data(tensor)
            self.lib.ggml_quantize_chunk(
                self.type, source, target, 0, case.tokens, self.row, self.ffi.NULL
            )

    def run(self) -> None:
        self.compute(self._graph)

    def result(self) -> Result:
        return self.attended(self._out)


class StoredAttention(_Graph):
    """One step over rows that are stored already; a context manager that frees its memory."""

    def __init__(self, case: Case, type_: str, threads: int, scale: float) -> None:
        super().__init__(case, type_, threads)
        self._out = self.attention(scale)
        self._graph = self.graph(self._out)
        self.allocate()

    def attend(self, rows: tuple[bytearray, bytearray], q: NDArray[np.float32]) -> Result:
        """(1, query_heads, head_dim) of q over rows of K and V."""
        self.data(self.q, np.float32)[:] = q.ravel()
        for tensor, held in zip((self.keys, self.values), rows, strict=True):
            self.data(tensor, np.uint8)[:] = np.frombuffer(held, np.uint8)
        self.run()
        return self.result()

    def run(self) -> None:
        self.compute(self._graph)

    def result(self) -> Result:
        return self.attended(self._out)

    def __enter__(self) -> StoredAttention:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()


def quantize_rows(type_: int, rows: NDArray[np.float32]) -> bytes:
    """What ggml stores of rows (tokens, numbers a row)."""
    ffi, lib = _library()
    tokens, row = rows.shape
    target = ffi.new("char[]", lib.ggml_row_size(type_, row) * tokens)
    source = ffi.from_buffer("float *", np.ascontiguousarray(rows, np.float32))
    written = lib.ggml_quantize_chunk(type_, source, target, 0, tokens, row, ffi.NULL)
    return bytes(ffi.buffer(target, written))


class _Seal(_Graph):
    """Writes all rows of K and V; a graph of its own then attends to what was written."""

    def __init__(self, case: Case, type_: str, inputs: Inputs, threads: int) -> None:
        super().__init__(case, type_, threads)
        sources = [self.tensor(TYPES["f32"], case.tokens, self.row) for _ in "kv"]
        places = self.tensor(_I64, 1, case.tokens)
        stores = [
            self.lib.ggml_set_rows(self.context, target, source, places)
            for target, source in zip((self.keys, self.values), sources, strict=True)
        ]
        self._store = self.graph(*stores)
        self._out = self.attention()
        self._attend = self.graph(self._out)
        self.allocate()
        self.set_queries(inputs)
        for source, rows in zip(sources, (inputs.keys, inputs.values), strict=True):
            self.data(source, np.float32)[:] = rows.ravel()
        self.data(places, np.int64)[:] = np.arange(case.tokens)

    def run(self) -> None:
        self.compute(self._store)

    def result(self) -> Result:
        self.compute(self._attend)
        return self.attended(self._out)


def available() -> str:
    """Name and version of what is measured; NotMeasured if it is not installed."""
    _library()
    return installed("llama-cpp-python")


class GgmlPeer(Peer):
    """K and V of one type. llama.cpp also rotates quantized caches; that is left out here, to its
    advantage."""

    name = "llama.cpp"

    def types(self, case: Case) -> Mapping[str, float]:
        if case.kind == "seal":
            return {name: TOLERANCE[name] for name in ("f16", "q8_0", "q4_0")}
        return TOLERANCE if case.kind == "attend" else {}

    def version(self) -> str:
        return available()

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        kind = _Seal if case.kind == "seal" else _Attention
        return kind(case, type_, inputs, threads)


peer = GgmlPeer()
