"""Who takes part in `decoder.py`: the same model with several attentions and caches.

Each has `step`, which appends tokens and gives the logits of the last, and `cache_bytes`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime

import kvassay
from kvassay import models
from kvassay.models.loading import read_config
from kvassay.models.onnx import GroupQuery, build
from kvassay.models.texts import topics_tokens
from kvassay_backends.ort.decoder import Decoder
from kvassay_backends.ort.linear import KvassayLinear
from kvassay_backends.ort.onnx_backend import OrtBackend
from kvassay_backends.ort.sessions import options

PRESETS: Final = ("turbo", "kivi", "fp16")
#: Name, element type of the cache.
GROUP_QUERY: Final = {"gqa-fp32": np.float32, "gqa-fp16": np.float16, "gqa-int8": np.int8}
#: Name, ggml's number of the type, bytes of 32 values.
LLAMA_CPP: Final = {"llama-f16": (1, 64), "llama-q8_0": (8, 34), "llama-q4_0": (2, 18)}
CONTESTANTS: Final = (*GROUP_QUERY, *PRESETS, *LLAMA_CPP)
CHUNK: Final = 512
#: Tokens that the scales of an int8 cache are taken from, and their room above the largest value.
_CALIBRATION: Final = 512
_MARGIN: Final = 1.2

Row = npt.NDArray[np.float32]


class Contestant(Protocol):
    """A decoder over one sequence."""

    cache_bytes: int

    def step(self, tokens: Sequence[int]) -> Row:
        """Logits (vocabulary,) after these tokens, which are appended to the cache."""


def ort_backend() -> OrtBackend:
    """The best variant that runs."""
    found = kvassay.load("ort")
    assert isinstance(found, OrtBackend)
    return found


def load(name: str, path: Path, capacity: int, threads: int, profile: str = "") -> Any:
    """A contestant; with `profile` ONNX Runtime writes how long each node took."""
    if name in LLAMA_CPP:
        return LlamaCpp(path, name, capacity, threads)
    backend = ort_backend()
    chosen = options(backend.library_path)
    if profile:
        chosen.enable_profiling, chosen.profile_file_prefix = True, profile
    if name in GROUP_QUERY:
        return GroupQueryDecoder(path, name, capacity, threads, backend, chosen)
    config, _ = read_config(models.GGUFFile(path))
    return Kvassay(path, name, capacity, threads, backend, chosen, config.shape)


class Kvassay:
    """This project's operators as attention, over a preset."""

    def __init__(
        self,
        path: Path,
        preset: str,
        capacity: int,
        threads: int,
        backend: OrtBackend,
        chosen: Any,
        shape: dict[str, int],
    ) -> None:
        spec = kvassay.preset(preset, **shape)
        self._decoder = Decoder(path, backend, spec, capacity, "int8", threads, chosen)
        self.session = self._decoder.session
        self.cache_bytes = sum(cache.nbytes for cache in self._decoder.caches)
        self.step = self._decoder.step


class GroupQueryDecoder:
    """ONNX Runtime's own attention over shared buffers, the weights multiplied as in ours."""

    def __init__(
        self,
        path: Path,
        name: str,
        capacity: int,
        threads: int,
        backend: OrtBackend,
        chosen: Any,
    ) -> None:
        kind = GROUP_QUERY[name]
        scales = calibrated(path, threads, backend) if kind is np.int8 else None
        linear = KvassayLinear.of(backend, threads)
        model, self.config = build(path, GroupQuery(kind is np.float16, scales), linear=linear)
        chosen.intra_op_num_threads = threads
        # Its threads and those of the weights' operator work by turns: none may spin meanwhile.
        chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
        )
        shape = (1, self.config.kv_heads, capacity, self.config.head_dim)
        self.caches = [np.zeros(shape, kind) for _ in range(2 * self.config.layers)]
        self.cache_bytes = sum(cache.nbytes for cache in self.caches)
        self._values = [onnxruntime.OrtValue.ortvalue_from_numpy(cache) for cache in self.caches]
        self._length = 0

    def step(self, tokens: Sequence[int]) -> Row:
        """Logits (vocabulary,) after these tokens, which are appended to the cache."""
        binding: Any = self.session.io_binding()
        end = self._length + len(tokens)
        binding.bind_cpu_input("tokens", np.asarray(tokens, np.int64))
        binding.bind_cpu_input("start", np.array([self._length], np.int64))
        binding.bind_cpu_input("seqlens_k", np.array([end - 1], np.int32))
        binding.bind_cpu_input("total_length", np.array([end], np.int32))
        for number, value in enumerate(self._values):
            stream = ("key", "value")[number % 2]
            binding.bind_ortvalue_input(f"past_{stream}.{number // 2}", value)
            binding.bind_ortvalue_output(f"present_{stream}.{number // 2}", value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        self._length = end
        row: Row = binding.get_outputs()[-1].numpy()[0]
        return row


def calibrated(path: Path, threads: int, backend: OrtBackend) -> list[tuple[Row, Row]]:
    """Scales of an int8 cache for each layer, from the keys and values of some text."""
    tokens = topics_tokens(models.load(path), _CALIBRATION)
    plain = GroupQueryDecoder(
        path, "gqa-fp32", len(tokens), threads, backend, options(backend.library_path)
    )
    plain.step([int(token) for token in tokens])
    found = [
        (np.abs(cache[0]).max(axis=1).ravel() * _MARGIN / 127 + 1e-6).astype(np.float32)
        for cache in plain.caches
    ]
    return list(zip(found[::2], found[1::2], strict=True))


class LlamaCpp:
    """llama.cpp with flash attention, keys and values of one type, through llama-cpp-python."""

    def __init__(self, path: Path, name: str, capacity: int, threads: int) -> None:
        package: Any = importlib.import_module("llama_cpp")
        number, size = LLAMA_CPP[name]
        self._llama: Any = package.Llama(
            str(path),
            n_ctx=capacity,
            n_batch=CHUNK,
            n_ubatch=CHUNK,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=True,
            type_k=number,
            type_v=number,
            verbose=False,
        )
        config, _ = read_config(models.GGUFFile(path))
        values = 2 * config.layers * config.kv_heads * config.head_dim * self._llama.n_ctx()
        self.cache_bytes = values // 32 * size

    def step(self, tokens: Sequence[int]) -> Row:
        """Logits (vocabulary,) after these tokens, which are appended to the cache."""
        self._llama.eval(list(tokens))
        pointer = self._llama._ctx.get_logits_ith(-1)
        return np.ctypeslib.as_array(pointer, (self._llama.n_vocab(),)).copy()
