"""Instructions of each operation: the signal that neither clock nor load disturbs.

Compiled libraries are counted by valgrind's callgrind, WebAssembly modules by their engine. What
cannot be counted here is a record without a comparison, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import kvassay
from kvassay.protocol import Backend, Cache, FloatArray
from kvassay.records import Record
from kvassay.registry import REFERENCE

from ..wasm.linear import load_linear
from . import callgrind, counted
from .truth import Checked
from .work import Owner, Shape, filled, owner

_SHAPE: Final = Shape(**counted.SHAPE)
_METHODS: Final[Mapping[str, str]] = {
    "attend": "attention of one query",
    "scores": "scores of one query",
    "append": f"append of {counted.PAGE} tokens one by one, of which one seals a page",
}

Counts = Mapping[str, Mapping[str, int]]


def measure(backend: str, variant: str, presets: Sequence[str], tokens: int) -> list[Record]:
    """Instructions of every preset and operation at one length."""
    loaded = kvassay.load(backend, variant)
    whose = owner(backend, variant, tokens, _SHAPE, loaded)
    if getattr(loaded, "evidence", {}).get("linear_memory"):
        counter, counts, outputs = "the engine's", *_metered(backend, variant, presets, tokens)
    elif not loaded.build_id:
        return _not_counted(whose, presets, "plain Python: what it costs is numpy's business")
    else:
        try:
            counts, outputs = _callgrind(f"{backend}/{variant}", presets, tokens)
        except callgrind.NotCountedError as error:
            return _not_counted(whose, presets, str(error))
        counter = "callgrind's, binding included"
    return [
        _record(whose, preset, name, counts[preset][name], checked, counter)
        for preset in presets
        for checked in (_checked(loaded, preset, tokens, outputs[preset]),)
        for name in counted.OPERATIONS
    ]


def _callgrind(
    target: str, presets: Sequence[str], tokens: int
) -> tuple[Counts, Mapping[str, str]]:
    arguments = {"targets": [target], "presets": list(presets), "tokens": tokens}
    counts, outputs = callgrind.count(Path(counted.__file__), arguments)
    found: Mapping[str, str] = outputs[target]
    if "error" in found:  # the processor that valgrind shows has fewer instructions
        raise callgrind.NotCountedError(f"under valgrind: {found['error']}")
    return counted.read(counts, outputs)[target], found


def _metered(
    backend: str, variant: str, presets: Sequence[str], tokens: int
) -> tuple[Counts, Mapping[str, str]]:
    one = load_linear(backend, variant).in_one_memory(metered=True)
    k, v, q = counted.inputs(tokens)
    counts, outputs = {}, {}
    for preset in presets:
        with one.prepare(_SHAPE.spec(preset)) as cache:
            cache.append(0, k, v)
            cache.attend(0, q)  # what is made at first use is there from then on
            cache.scores(0, q)
            outputs[preset] = counted.checksum(cache.attend(0, q))
            work: dict[str, Callable[[], object]] = {
                "attend": partial(cache.attend, 0, q),
                "scores": partial(cache.scores, 0, q),
                "append": partial(_append, cache, k, v),
            }
            counts[preset] = {name: _spent(one, work[name]) for name in counted.OPERATIONS}
    return counts, outputs


def _append(cache: Cache, k: FloatArray, v: FloatArray) -> None:
    for token in range(counted.PAGE):
        cache.append(0, k[token : token + 1], v[token : token + 1])


def _spent(one: Any, work: Callable[[], object]) -> int:
    before = int(one.spent)
    work()
    return int(one.spent) - before


def _checked(loaded: Backend, preset: str, tokens: int, output: str) -> Checked:
    """Held to the reference; a backend that declares a bound, to what it computes uncounted."""
    k, v, q = counted.inputs(tokens)
    truth = kvassay.load(REFERENCE) if loaded.exact else loaded
    with filled(truth, _SHAPE.spec(preset), k, v) as cache:
        expected = counted.checksum(cache.attend(0, q))
    wrong = "" if output == expected else "what was counted computed something else"
    return Checked(output, expected, wrong)


def _record(
    whose: Owner, preset: str, name: str, value: int, checked: Checked, counter: str
) -> Record:
    detail = {**checked.detail, "operation": name, "method": _METHODS[name], "counter": counter}
    return whose.record(
        *("instructions", preset, checked.value(value), "instructions", checked.count(1)),
        detail,
        part=name,
    )


def _not_counted(whose: Owner, presets: Sequence[str], reason: str) -> list[Record]:
    detail = {"reason": reason}
    return [
        whose.record("instructions", preset, math.nan, "instructions", 0, detail)
        for preset in presets
    ]
