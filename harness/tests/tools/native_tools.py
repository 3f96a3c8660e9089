"""What the tests of the native backend share: specs, tokens, and small foreign libraries in C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kvassay import Cache, Spec
from kvassay.protocol import FloatArray
from kvassay_backends.native import backend, build_info

NATIVE = backend.load("scalar")
RECORD = build_info.build_record()
assert RECORD is not None
BUILT = build_info.LIBRARY_DIR / RECORD["library"]
TARGET = RECORD["target"]
SOURCES = Path(__file__).resolve().parents[3] / "backends" / "src"
SHAPE: dict[str, Any] = {"layers": 1, "kv_heads": 2, "query_heads": 4, "head_dim": 32}
TURBO: dict[str, Any] = {
    "keys": "turbo:3.5",
    "values": "turbo:3",
    "key_centre": "page",
    "value_centre": "frozen",
    "page_tokens": 16,
}


def make_spec(**fields: Any) -> Spec:
    """A small turbo spec with these fields replaced."""
    return Spec(**{**SHAPE, **TURBO, **fields})


def make_tokens(spec: Spec, count: int, seed: int = 0) -> FloatArray:
    """Keys and values: (2, count, kv_heads, head_dim)."""
    shape = (2, count, spec.kv_heads, spec.head_dim)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def make_queries(spec: Spec, count: int, seed: int = 1) -> FloatArray:
    """(count, query_heads, head_dim)."""
    shape = (count, spec.query_heads, spec.head_dim)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def add(cache: Cache, rows: FloatArray) -> None:
    """Append (2, count, kv_heads, head_dim) to every layer."""
    for layer in range(cache.spec.layers):
        cache.append(layer, rows[0], rows[1])


def filled(spec: Spec, rows: FloatArray, threads: int = 1) -> Cache:
    """A native cache that got these tokens in one append."""
    cache = NATIVE.prepare(spec, threads)
    add(cache, rows)
    return cache


def compile_c(arguments: list[str]) -> None:
    """Run the C compiler of the build for the machine that the library was built for."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", TARGET]
    include = [f"-I{SOURCES / 'include'}", f"-I{SOURCES}"]
    done = subprocess.run([*command, *include, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
