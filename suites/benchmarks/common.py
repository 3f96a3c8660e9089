"""Parameters of all benchmarks, what they measure, and how an unavailable backend says so.

asv runs these files against older commits too. What is used of the installed kvassay are presets,
the registry and the protocol; what is used of the suites comes from this checkout, by its path.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.errors import KvassayError
from kvassay.protocol import Backend, Cache, FloatArray

#: Appended to, never reordered or removed: asv tells histories apart by these.
TARGETS: Final = [
    "native/scalar",
    "native/avx2",
    "native/avx512",
    "native/avx512vnni",
    "native/neon",
    "native/neondot",
    "wasm/scalar",
    "wasm/simd128",
    "wasm/relaxed",
    "reference/scalar",
]
PRESETS: Final = ["fp16", "turbo", "turbo-qjl", "kivi"]
TOKENS: Final = [1028, 4100]
SHAPE: Final[dict[str, Any]] = {"layers": 1, "kv_heads": 2, "query_heads": 8, "head_dim": 128}
#: Results of `registry.provider(...).variants()`, by the number that the history keeps.
STATUSES: Final = [
    "ready",
    "emulated",
    "not-built",
    "unsupported-cpu",
    "missing-package",
    "broken",
    "unknown to this commit",
]
_SUITE: Final = Path(__file__).parents[1] / "kvassay_suites" / "performance"
_ROUNDS: Final = 21
_STRETCHES: Final = 8


def load(target: str) -> Backend:
    """The backend of a target; NotImplementedError with the reason, which asv shows as n/a.

    Times under an emulator mean nothing, so a variant that only one runs is n/a as well.
    """
    backend, _, variant = target.partition("/")
    try:
        state = kvassay.registry.provider(backend).variants().get(variant)
        if state is not None and state.status == "emulated":
            raise NotImplementedError(f"{target} runs only under {state.reason}")
        return kvassay.load(backend, variant)
    except KvassayError as error:
        raise NotImplementedError(str(error)) from error


def status(target: str) -> int:
    """The place in STATUSES of what the registry says of a target."""
    backend, _, variant = target.partition("/")
    try:
        state = kvassay.registry.provider(backend).variants().get(variant)
    except KvassayError:
        return STATUSES.index("missing-package")
    return len(STATUSES) - 1 if state is None else STATUSES.index(state.status)


def from_checkout(name: str) -> ModuleType:
    """A module of the performance suite that needs nothing but kvassay's protocol."""
    spec = importlib.util.spec_from_file_location(f"kvassay_{name}", _SUITE / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no module {name} in {_SUITE}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(tokens: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Keys, values (tokens, 2, 128) and a query (8, 128), pinned."""
    random = np.random.default_rng(0)
    k, v = random.standard_normal((2, tokens, SHAPE["kv_heads"], SHAPE["head_dim"]), np.float32)
    return k, v, random.standard_normal((SHAPE["query_heads"], SHAPE["head_dim"]), np.float32)


def filled(loaded: Backend, preset: str, k: FloatArray, v: FloatArray) -> Cache:
    """A cache with these tokens."""
    cache = loaded.prepare(kvassay.preset(preset, **SHAPE))
    cache.append(0, k, v)
    return cache


def ratio(work: Callable[[], object], base: Callable[[], object]) -> float:
    """Median over rounds of the least of a few calls by turns, over that of `base`."""
    work()
    base()
    return statistics.median(_least(work, base) for _ in range(_ROUNDS))


def _least(work: Callable[[], object], base: Callable[[], object]) -> float:
    pairs = [(_seconds(work), _seconds(base)) for _ in range(_STRETCHES)]
    return min(a for a, _ in pairs) / min(b for _, b in pairs)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
