"""A hundred lives of caches in one linear memory: it may grow in the first, and never again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import kvassay
from kvassay.protocol import Backend, Cache
from kvassay.suite import Depth

from ..common_inputs import gaussian

SESSIONS: Final[Mapping[Depth, int]] = {"quick": 20, "default": 100, "full": 300}
#: Two models that take turns: other shapes, other codecs, other page sizes.
_MODELS: Final = (
    {"preset": "turbo", "layers": 2, "kv_heads": 3, "query_heads": 9, "head_dim": 64},
    {"preset": "kivi", "layers": 1, "kv_heads": 2, "query_heads": 8, "head_dim": 128},
)
_PROMPT: Final = 300
_STEPS: Final = 4


@dataclass(frozen=True)
class Found:
    """Growths after the first session, and the memory at the end."""

    sessions: int
    growths: int
    bytes: int
    detail: dict[str, Any]


def run(backend: Backend, memory: Callable[[], Mapping[str, int]], count: int) -> Found:
    """`count` sessions; `memory` tells `growths`, `bytes`, `pages`, `highWater` and `used`."""
    seen = []
    for _ in range(count):
        _session(backend)
        seen.append(dict(memory()))
    first, last = seen[0], seen[-1]
    # A session that gives back less than it took would grow memory in the end.
    leaked = last["used"] - first["used"]
    return Found(
        sessions=count,
        growths=last["growths"] - first["growths"],
        bytes=last["bytes"],
        detail={
            "sessions": count,
            "growths": [item["growths"] for item in (first, last)],
            "pages": [item["pages"] for item in (first, last)],
            "high_water": last["highWater"],
            "kept_bytes": leaked,
        },
    )


def _session(backend: Backend) -> None:
    """Append, attend, truncate, fork, reset, and a switch to the other model in between."""
    for model in _MODELS:
        fields = dict(model)
        spec = kvassay.preset(str(fields.pop("preset")), **fields)
        with backend.prepare(spec) as cache:
            _talk(cache, _PROMPT)
            cache.truncate(_PROMPT - _STEPS)
            _talk(cache, _STEPS)
            with cache.fork() as other:
                _talk(other, spec.page_tokens)
            cache.reset()
            _talk(cache, _PROMPT)


def _talk(cache: Cache, tokens: int) -> None:
    spec = cache.spec
    rows = gaussian(1, 2, tokens, spec.kv_heads, spec.head_dim)
    q = gaussian(2, spec.query_heads, spec.head_dim)
    for layer in range(spec.layers):
        cache.append(layer, rows[0], rows[1])
        cache.attend(layer, q)
