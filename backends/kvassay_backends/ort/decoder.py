"""A language model in ONNX Runtime with this project's operators as its attention.

The graph comes from `kvassay.models.onnx`; here are the cache's blocks, bound to the session's
inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto

from kvassay.errors import InputError
from kvassay.models.config import ModelConfig
from kvassay.models.onnx import Precision, build
from kvassay.models.onnx.nodes import Builder
from kvassay.protocol import FloatArray
from kvassay.spec import Spec

from .blocks import ByteArray
from .graphs import DOMAIN, attributes
from .linear import KvassayLinear
from .onnx_backend import OrtBackend
from .sessions import options


@dataclass(frozen=True)
class KvassayAttention:
    """`kvassay.Append` and `kvassay.Attend` in every layer.

    Inputs cache.i and outputs cache_out.i are uint8 (1, bytes).
    """

    spec: Spec
    variant: str = ""
    threads: int = 1

    def domains(self) -> dict[str, int]:
        """Operator domains it uses, with their versions."""
        return {DOMAIN: 1}

    def inputs(self, graph: Builder, config: ModelConfig) -> None:
        """None beside tokens and start."""

    def layer(
        self, graph: Builder, config: ModelConfig, number: int, q: str, k: str, v: str
    ) -> str:
        """Append k and v, then attend with q."""
        name = f"layer.{number}"
        given = attributes(
            self.spec.layer_specs[number], number, self.spec.identity, self.variant, self.threads
        )
        shape: list[int | str] = [1, f"bytes.{number}"]
        graph.input(f"cache.{number}", TensorProto.UINT8, shape)
        held = graph.one(
            "Append", [f"cache.{number}", k, v], f"cache_out.{number}", DOMAIN, **given
        )
        graph.output(held, TensorProto.UINT8, shape)
        return graph.one("Attend", [held, q], f"{name}.attention", DOMAIN, **given)


class Decoder:
    """A session over one sequence with room for `capacity` tokens."""

    def __init__(
        self,
        path: str | Path,
        backend: OrtBackend,
        spec: Spec,
        capacity: int,
        precision: Precision = "int8",
        threads: int = 1,
        session_options: Any = None,
    ) -> None:
        """session_options: those of `kvassay_backends.ort.sessions.options`, changed as wanted."""
        attention = KvassayAttention(spec, backend.variant, threads)
        linear = KvassayLinear.of(backend, threads) if precision == "int8" else None
        model, self.config = build(path, attention, precision, linear=linear)
        chosen = session_options or options(backend.library_path)
        # Where the products are ours too, the operators' own threads do the work: others that spin
        # between nodes would only take their processors.
        chosen.intra_op_num_threads = 1 if linear else threads
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
        )
        self._blocks = [layer.blocks for layer in backend.layers(spec, threads)]
        self._capacity = capacity
        self.reset()

    def reset(self) -> None:
        """An empty cache."""
        pages = [at.pages_for(self._capacity) for at in self._blocks]
        pairs = zip(self._blocks, pages, strict=True)
        self.caches: list[ByteArray] = [at.empty(count) for at, count in pairs]
        rows = [cache.reshape(1, -1) for cache in self.caches]
        self._values = [onnxruntime.OrtValue.ortvalue_from_numpy(row) for row in rows]
        self.length = 0

    def step(self, tokens: Sequence[int]) -> FloatArray:
        """Logits (vocabulary,) after these tokens, which are appended to the cache.

        Raises InputError for an empty step.
        """
        if not len(tokens):
            raise InputError("a step needs at least one token")
        binding: Any = self.session.io_binding()
        binding.bind_cpu_input("tokens", np.asarray(tokens, np.int64))
        binding.bind_cpu_input("start", np.array([self.length], np.int64))
        for number, value in enumerate(self._values):
            binding.bind_ortvalue_input(f"cache.{number}", value)
            binding.bind_ortvalue_output(f"cache_out.{number}", value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        self.length += len(tokens)
        logits: FloatArray = binding.get_outputs()[-1].numpy()[0]
        return logits

    def greedy(self, prompt: Sequence[int], n: int) -> list[int]:
        """The n most likely tokens after a prompt, one by one."""
        row = self.step(prompt)
        chosen: list[int] = []
        while len(chosen) < n:
            chosen.append(int(row.argmax()))
            if len(chosen) < n:
                row = self.step(chosen[-1:])
        return chosen
