"""What is timed: caches of a preset and shape, their calls, and the fixed loop beside them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache, FloatArray

from ..common.inputs import gaussian
from ..common.specs import instruction_stage
from ..common.specs import record as plain_record

#: What quantized presets are measured beside.
BASELINE: Final = "fp16"
#: A short page, nothing fp16: what is left of a step is what it costs whatever the length.
SHORT: Final = 16
Call = Callable[[], object]
_SHORT_SPEC: Final[dict[str, Any]] = {"page_tokens": SHORT, "window": 0, "sinks": 0}
_CALIBRATION: Final = bytes(1 << 16)


@dataclass(frozen=True)
class Shape:
    """One layer. Sizes of a step do not depend on how many there are."""

    kv_heads: int
    query_heads: int
    head_dim: int

    def spec(self, preset: str, short: bool = False) -> kvassay.Spec:
        """The preset with this shape, or with short pages and no fp16 tokens."""
        changed = _SHORT_SPEC if short else {}
        return kvassay.preset(preset, layers=1, **asdict(self), **changed)

    def describe(self) -> str:
        """For people."""
        return f"{self.kv_heads} KV and {self.query_heads} query heads of {self.head_dim}"


def tokens_of(shape: Shape, tokens: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Keys, values (tokens, kv_heads, head_dim) and 16 queries (16, query_heads, head_dim)."""
    k, v = (gaussian(seed, tokens, shape.kv_heads, shape.head_dim) for seed in (1, 2))
    return k, v, gaussian(3, 16, shape.query_heads, shape.head_dim)


def filled(loaded: Backend, spec: kvassay.Spec, k: FloatArray, v: FloatArray) -> Cache:
    """A cache of one layer with these tokens."""
    cache = loaded.prepare(spec)
    cache.append(0, k, v)
    return cache


def calibrate() -> None:
    """The fixed loop: SHA-256 of 64 KiB, the same work on every machine and in every version."""
    hashlib.sha256(_CALIBRATION).digest()


def checksum(out: FloatArray) -> str:
    """SHA-256 of the bytes of an output, shortened: what the timed call really computed."""
    return hashlib.sha256(np.ascontiguousarray(out, np.float32).tobytes()).hexdigest()[:16]


def processor_time() -> int:
    """Nanoseconds that this thread has run, on any core: others who run here do not count."""
    return time.thread_time_ns()


@dataclass(frozen=True)
class Owner:
    """Whom a task's records are about, and in what circumstances."""

    backend: str
    variant: str
    tokens: int
    shape: Shape
    build_id: str

    @property
    def subject(self) -> str:
        """Length and shape, the same in every run of one depth."""
        return f"{self.tokens} tokens, {self.shape.describe()}"

    def record(
        self, check: str, preset: str, value: float, unit: str, comparisons: int,
        detail: Mapping[str, Any], part: str = "",
    ) -> kvassay.Record:  # fmt: skip
        """A record of this suite, of a part of its subject where that has some."""
        return plain_record(
            f"performance.{check}",
            instruction_stage(self.backend, self.variant),
            *(self.backend, self.variant, value, unit, comparisons),
            subject=f"{part}, {self.subject}" if part else self.subject,
            preset=preset,
            detail={
                "tokens": self.tokens,
                "shape": asdict(self.shape),
                "build_id": self.build_id,
                "clock": "thread time",
                **detail,
            },
        )


def owner(backend: str, variant: str, tokens: int, shape: Shape, loaded: Backend) -> Owner:
    """Whom the records are about. The registry loads no build that its sources have left behind,
    so a build id here is that of the sources."""
    return Owner(backend, variant, tokens, shape, loaded.build_id)
