"""The golden cases: specs, pinned inputs, and the files they are kept in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.protocol import FloatArray

FORMAT: Final = 1
QUERIES: Final = 5
SUFFIXES: Final = ("json", "dump", "scores", "outputs")
_SHAPE: Final = {"kv_heads": 2, "query_heads": 4, "page_tokens": 16}


def _turbo(head_dim: int, keys: str, values: str, **fields: Any) -> dict[str, Any]:
    return {**_SHAPE, "head_dim": head_dim, "keys": keys, "values": values, **fields}


_PAGE: Final = {"key_centre": "page", "value_centre": "frozen"}
#: Name: spec and tokens. The first three tokens are zero, e1 and [100, .01, .01, ...]: one golden
#: case for each head dim whose transform they pin.
CASES: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "d64": (_turbo(64, "turbo:4", "turbo:4"), 17),
    "d80": (_turbo(80, "turbo:3.5", "turbo:2.5", scale="u8log"), 17),
    "d96": (_turbo(96, "turbo:3", "turbo:3", scale="fp16", seed=1), 17),
    "d112": (_turbo(112, "turbo:2.5+qjl", "turbo:3.5", seed=2), 17),
    "d128": (_turbo(128, "turbo:2", "turbo:2", seed=2**64 - 1), 17),
    "d160": (_turbo(160, "turbo:3+qjl", "turbo:4", scale="fp16", rounds=1), 17),
    "d192": (_turbo(192, "turbo:3.5", "turbo:3", scale="u8log", rounds=1), 17),
    "d256": (_turbo(256, "turbo:4+qjl", "turbo:2", scale="u8log"), 17),
    "fp16": (_turbo(64, "fp16", "fp16"), 20),
    "kivi": (_turbo(80, "kivi:2", "kivi:3", page_tokens=48), 50),
    "centred": (_turbo(64, "kivi:4", "turbo:3", key_centre="frozen", value_centre="frozen"), 40),
    "product": (_turbo(64, "turbo:3.5", "turbo:3", window=20, sinks=2, **_PAGE), 75),
    "span": (_turbo(64, "turbo:4", "kivi:4", sinks=1, span=30), 100),
    "chunks": (_turbo(64, "turbo:2", "turbo:2", kv_heads=1, query_heads=2, **_PAGE), 300),
    "layers": (
        _turbo(
            64,
            "turbo:3",
            "turbo:3",
            layers=2,
            softmax_scale=0.25,
            layer_overrides={1: {"keys": "fp16", "values": "kivi:2", "page_tokens": 32}},
        ),
        37,
    ),
}


def spec_of(name: str) -> kvassay.Spec:
    """The spec of a case."""
    return kvassay.Spec(**{"layers": 1, **CASES[name][0]})


def _draws(seed: int) -> Iterator[int]:
    """SplitMix64 (Steele, Lea, Flood 2014)."""
    mask = 2**64 - 1
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


@lru_cache(maxsize=64)
def pinned(seed: int, *shape: int) -> FloatArray:
    """Multiples of 2^-10 between -2 and 2, from integers alone: the same on every machine."""
    numbers = _draws(seed)
    count = int(np.prod(shape))
    integers = np.array([(next(numbers) >> 40) % 4001 for _ in range(count)], np.int64)
    return ((integers - 2000) / 1024).astype(np.float32).reshape(shape)


def inputs(name: str, layer: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Keys, values (tokens, kv_heads, d) and queries (QUERIES, query_heads, d) of a layer."""
    spec, tokens = spec_of(name), CASES[name][1]
    number = 10 * list(CASES).index(name) + layer
    shape = (tokens, spec.kv_heads, spec.head_dim)
    k, v = pinned(1000 + number, *shape).copy(), pinned(2000 + number, *shape).copy()
    for rows in (k, v):
        rows[:3] = 0
        rows[1, :, 0] = 1
        rows[2] = np.float32(0.01)
        rows[2, :, 0] = 100
    return k, v, pinned(3000 + number, QUERIES, spec.query_heads, spec.head_dim)


def config(name: str) -> dict[str, Any]:
    """What is kept beside the bytes."""
    return {"golden": FORMAT, "spec": spec_of(name).to_dict(), "tokens": CASES[name][1]}


def folder() -> Traversable:
    """Where the golden files are."""
    return files(__package__) / "files"


def read(name: str, suffix: str) -> bytes:
    """A golden file; a missing one is an error, never made anew."""
    return (folder() / f"{name}.{suffix}").read_bytes()


def read_config(name: str) -> dict[str, Any]:
    """The kept config of a case."""
    content: dict[str, Any] = json.loads(read(name, "json"))
    return content
