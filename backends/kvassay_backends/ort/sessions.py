"""Sessions of ONNX Runtime that run single nodes over blocks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import onnxruntime

from kvassay.errors import CacheMemoryError, KvassayError, SpanError, StateError, UnsupportedError
from kvassay.protocol import FloatArray

from .blocks import ByteArray
from .graphs import single

_T = TypeVar("_T")
_FATAL: Final = 4
_CODE: Final = re.compile(r"KV_E_(\w+): (.*)", re.DOTALL)
_ERRORS: Final[dict[str, type[KvassayError]]] = {
    "MEMORY": CacheMemoryError,
    "SPAN": SpanError,
    "SPEC": UnsupportedError,
}


def options(library: Path) -> Any:
    """Session options with the operators, one thread (the operators have their own)."""
    out = onnxruntime.SessionOptions()
    out.log_severity_level = _FATAL  # what goes wrong is raised
    out.intra_op_num_threads = out.inter_op_num_threads = 1
    out.enable_cpu_mem_arena = out.enable_mem_pattern = False  # a node needs neither
    out.register_custom_ops_library(str(library))
    return out


class NodeSessions:
    """The three operators for one layer, each session made when it is first used."""

    def __init__(self, session_options: Any, attributes: dict[str, Any]) -> None:
        self._options = session_options
        self._attributes = attributes
        #: Whether any has been made: only runs need scratch.
        self.made = False

    def _session(self, operator: str) -> Any:
        self.made = True
        model = single(operator, self._attributes)
        make = onnxruntime.InferenceSession
        return _reporting(lambda: make(model, self._options, providers=["CPUExecutionProvider"]))

    @cached_property
    def _append(self) -> Any:
        return self._session("Append")

    @cached_property
    def _attend(self) -> Any:
        return self._session("Attend")

    @cached_property
    def _scores(self) -> Any:
        return self._session("Scores")

    def append(self, block: ByteArray, keys: FloatArray, values: FloatArray) -> int:
        """Append in place; the mask of the variants that ran."""
        binding = self._append.io_binding()
        cache = onnxruntime.OrtValue.ortvalue_from_numpy(block)
        if cache.data_ptr() != block.__array_interface__["data"][0]:
            raise StateError("this onnxruntime copies numpy arrays; the cache would not be updated")
        binding.bind_ortvalue_input("cache", cache)
        binding.bind_ortvalue_output("cache_out", cache)
        binding.bind_cpu_input("keys", keys)
        binding.bind_cpu_input("values", values)
        binding.bind_output("ran")
        _reporting(lambda: self._append.run_with_iobinding(binding))
        return int(binding.get_outputs()[1].numpy()[0])

    def attend(self, block: ByteArray, query: FloatArray) -> tuple[FloatArray, int]:
        """Outputs like `query`, and the mask of the variants that ran."""
        return self._read(self._attend, "output", block, query)

    def scores(self, block: ByteArray, query: FloatArray) -> tuple[FloatArray, int]:
        """(query heads, tokens), and the mask of the variants that ran."""
        return self._read(self._scores, "scores", block, query)

    def _read(
        self, session: Any, name: str, block: ByteArray, query: FloatArray
    ) -> tuple[FloatArray, int]:
        feeds = {"cache": block, "query": query}
        out, ran = _reporting(lambda: session.run([name, "ran"], feeds))
        return np.asarray(out, np.float32), int(ran[0])


def _reporting(work: Callable[[], _T]) -> _T:
    """Raise the error that a node's message names."""
    try:
        return work()
    except Exception as error:  # onnxruntime's errors have no common base but this
        found = _CODE.search(str(error))
        if found is None:
            raise
        raise _ERRORS.get(found[1], StateError)(found[2].strip()) from None
