"""What a cache holds over its life, beside what it bills. Runs in a process of its own."""

from __future__ import annotations

from typing import Any, Final

import kvassay
from kvassay.protocol import Cache

from .load import Tokens, attend_all, fill, preset_spec, session, warm_up
from .process import Probe

#: Sessions before the first of which the growth counts: caches of the process fill up.
_WARM: Final = 10
_CHUNK: Final = 512
_ROUNDS: Final = 3


def measure(
    backend: str,
    variant: str,
    preset: str,
    shape: dict[str, Any],
    tokens: int,
    session_shape: dict[str, Any],
    sessions: int,
) -> dict[str, Any]:
    """Bytes held (by evidence) and billed (by part) at each moment of a cache's life.

    Moments: new, appended, attended, reset, closed, sessions. The last two bill nothing; the last
    is the growth over `sessions` short lives.
    """
    loaded = kvassay.load(backend, variant)
    spec = preset_spec(preset, shape)
    given = Tokens.of(spec, tokens)
    short = preset_spec(preset, session_shape)
    brief = Tokens.of(short, short.sinks + short.window + 2 * short.page_tokens + 3)
    warm_up(loaded, spec)
    session(loaded, short, brief)
    probe = Probe()
    cache = loaded.prepare(spec)
    moments = {"new": _moment(probe, cache)}
    fill(cache, given, _CHUNK)
    moments["appended"] = _moment(probe, cache)
    for _ in range(_ROUNDS):
        attend_all(cache, given.q)
    moments["attended"] = _moment(probe, cache)
    cache.reset()
    moments["reset"] = _moment(probe, cache)
    cache.close()
    del cache
    moments["closed"] = _moment(probe, None)
    for _ in range(_WARM):
        session(loaded, short, brief)
    before = probe.held()
    for _ in range(sessions):
        session(loaded, short, brief)
    growth = {kind: bytes_ - before[kind] for kind, bytes_ in probe.held().items()}
    moments["sessions"] = {"held": growth, "billed": {}}
    return moments


def _moment(probe: Probe, cache: Cache | None) -> dict[str, Any]:
    billed = dict(cache.nbytes) if cache is not None else {}
    return {"held": probe.held(), "billed": billed}
