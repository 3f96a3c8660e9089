"""Sessions, caps and instruction counts of one target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.errors import CacheMemoryError, StateError, TruncateError, UnsupportedError
from kvassay.judging.rules import rulebook
from kvassay.presets import PRESETS
from kvassay.protocol import Cache
from kvassay.records import Record

from ..common.inputs import gaussian
from ..common.specs import instruction_stage, record
from .linear import LinearBackend, OneMemory, load_linear

#: The models that a session goes through: other layers, heads and codecs each time.
MODELS: Final[tuple[dict[str, Any], ...]] = (
    {"keys": "turbo:3.5", "values": "turbo:3", "layers": 2, "kv_heads": 2, "query_heads": 8},
    {"keys": "kivi:2", "values": "kivi:2", "layers": 1, "kv_heads": 4, "query_heads": 4},
    {"keys": "fp16", "values": "fp16", "layers": 3, "kv_heads": 1, "query_heads": 2},
)
HEAD_DIM: Final = 64
TURNS: Final = (40, 1, 1, 33)
#: Linear memory of the cap's task, in which a few hundred tokens fit and not many more.
CAP: Final = 4 << 20
CAPPED: Final[dict[str, Any]] = {"layers": 1, "kv_heads": 4, "query_heads": 8, "head_dim": 128}
#: The preset that budgets are for; a module that lacks it is counted with one that it has.
BUDGETED: Final = "turbo"
#: Shape in which instructions are counted.
COUNTED: Final[dict[str, Any]] = {"layers": 1, "kv_heads": 2, "query_heads": 8, "head_dim": 128}


def list_memories(targets: Sequence[tuple[str, str, bool]]) -> list[Record]:
    """Which targets keep their caches in a linear memory."""
    return [
        record("run.linear_memory", "", backend, variant, linear, "has one", 1)
        for backend, variant, linear in targets
    ]


def sessions(backend: str, variant: str, sessions: int) -> list[Record]:
    """Growths of one memory after the first of many equal sessions."""
    one = load_linear(backend, variant).in_one_memory()
    specs = [spec for spec in _specs() if one.supports(spec)]
    _session(one, specs)
    first = one.memory_use
    for _ in range(sessions - 1):
        _session(one, specs)
    last = one.memory_use
    # A module that does not count its growths cannot hide them: the pages tell.
    growths = max(last.growths - first.growths, last.pages - first.pages)
    detail = {
        "sessions": sessions,
        "models": len(specs),
        "growths_of_the_first": first.growths,
        "pages": last.pages,
        "high_water_bytes": last.high_water,
        "cap_pages": last.cap,
    }
    return [
        _record(
            *("growth_events", backend, variant, growths, "growths after the first session"),
            (sessions - 1) * len(specs),
            detail=detail,
        )
    ]


def _specs() -> list[kvassay.Spec]:
    common = {"head_dim": HEAD_DIM, "page_tokens": 16, "window": 16, "sinks": 2}
    return [kvassay.Spec(**{**common, **model}) for model in MODELS]


def _session(one: OneMemory, specs: Sequence[kvassay.Spec]) -> None:
    """Every model in turn: turns of a conversation, a rollback, a fork, a reset, another turn."""
    for spec in specs:
        with one.prepare(spec) as cache:
            for tokens in TURNS:
                _turn(cache, tokens)
            _roll_back(cache)
            with cache.fork() as other:
                _turn(other, 5)
            cache.reset()
            _turn(cache, TURNS[0])


def _turn(cache: Cache, tokens: int) -> None:
    spec = cache.spec
    k, v = (gaussian(seed, tokens, spec.kv_heads, spec.head_dim) for seed in (1, 2))
    q = gaussian(3, spec.query_heads, spec.head_dim)
    for layer in range(spec.layers):
        cache.append(layer, k, v)
        cache.attend(layer, q)


def _roll_back(cache: Cache) -> None:
    try:
        cache.truncate(cache.length - 20)
    except TruncateError as error:
        cache.truncate(max(error.allowed))


def cap(backend: str, variant: str) -> list[Record]:
    """A cache filled until its memory's cap: a typed error that says how much was asked and left,
    and the cache as it was, at work."""
    one = load_linear(backend, variant).in_one_memory(CAP)
    spec = kvassay.preset(_first_supported(one, ("fp16", *PRESETS), CAPPED), **CAPPED)
    k, v = (gaussian(seed, 64, 4, 128) for seed in (1, 2))
    q = gaussian(3, 8, 128)
    faults = []
    with one.prepare(spec) as cache:
        refused, before = _fill(cache, k, v)
        if refused is None:
            faults.append(f"{before} tokens were appended and no cap was reached")
        elif not refused.asked or refused.left is None or refused.asked > CAP:
            faults.append(f"asked {refused.asked}, left {refused.left}")
        if cache.lengths != (before,):
            faults.append(f"length {cache.lengths[0]}, was {before}")
        try:
            if not np.isfinite(cache.attend(0, q)).all():
                faults.append("attend gives no numbers")
            cache.truncate(64)
            cache.append(0, k, v)
        except (CacheMemoryError, StateError) as error:
            faults.append(f"afterwards: {error}")
        pages = one.memory_use.pages
        if pages * 65536 > CAP:
            faults.append(f"{pages} pages of linear memory")
    detail = {"faults": faults, "tokens": before, "refusal": str(refused), "cap_bytes": CAP}
    return [_record("cap_faults", backend, variant, len(faults), "faults", 5, detail=detail)]


def _fill(cache: Cache, k: Any, v: Any) -> tuple[CacheMemoryError | None, int]:
    """The refusal that ended it, and the tokens that were in by then."""
    before = 0
    while before * k[0].nbytes < CAP:
        before = cache.length
        try:
            cache.append(0, k, v)
        except CacheMemoryError as error:
            return error.with_traceback(None), before  # whose frames hold pages
    return None, cache.length


def fuel(backend: str, variant: str) -> list[Record]:
    """Instructions of each operation, counted in two memories, which must agree."""
    loaded = load_linear(backend, variant)
    preset = _first_supported(loaded, (BUDGETED, *PRESETS), COUNTED)
    budgets = rulebook().rule("wasm.fuel").budgets if preset == BUDGETED else {}
    first, second = (count(loaded, preset) for _ in range(2))
    records = []
    for name, instructions in first.items():
        subject = f"{variant}: {name}"
        budget = budgets.get(subject, float("nan"))
        detail = {
            "instructions": instructions,
            "budget": budget,
            "operation": name,
            "preset": preset,
        }
        share = instructions / budget
        records.append(
            _record("fuel", backend, variant, share, "of the budget", 1, subject, detail)
        )
    differing = [name for name in first if first[name] != second[name]]
    records.append(
        _record(
            *("fuel_unsteady", backend, variant, len(differing), "operations", len(first)),
            detail={"first": first, "second": second},
        )
    )
    return records


def count(loaded: LinearBackend, preset: str = BUDGETED) -> dict[str, int]:
    """Instructions of the operations of a preset, by name."""
    one = loaded.in_one_memory(metered=True)
    spec = kvassay.preset(preset, **COUNTED)
    k, v = (gaussian(seed, 1024, 2, 128) for seed in (1, 2))
    q = gaussian(3, 8, 128)
    found = {}
    with one.prepare(spec) as cache:
        cache.append(0, k[:1], v[:1])  # the stores are there from then on
        found["append a token"] = _spent(one, lambda: cache.append(0, k[1:2], v[1:2]))
        window = spec.sinks + spec.window + spec.page_tokens
        cache.append(0, k[2 : window - 1], v[2 : window - 1])
        found["append a token and seal a page"] = _spent(
            one, lambda: cache.append(0, k[window - 1 : window], v[window - 1 : window])
        )
        cache.append(0, k[window:], v[window:])
        cache.attend(0, q)
        found["attend at 1024 tokens"] = _spent(one, lambda: cache.attend(0, q))
    short = kvassay.preset(preset, **COUNTED, page_tokens=16, window=0, sinks=0)
    with one.prepare(short) as cache:
        cache.append(0, k[:16], v[:16])
        cache.attend(0, q)
        found["attend at 16 tokens"] = _spent(one, lambda: cache.attend(0, q))
    return found


def _first_supported(backend: OneMemory, presets: Iterable[str], shape: Mapping[str, int]) -> str:
    """The first of these presets that it executes; UnsupportedError if none."""
    for preset in presets:
        if backend.supports(kvassay.preset(preset, **shape)):
            return preset
    raise UnsupportedError(f"none of the presets {', '.join(presets)} is supported")


def _spent(one: OneMemory, work: Callable[[], object]) -> int:
    before = one.spent
    work()
    return one.spent - before


def _record(
    check: str,
    backend: str,
    variant: str,
    value: float,
    unit: str,
    comparisons: int,
    subject: str = "",
    detail: dict[str, Any] | None = None,
) -> Record:
    stage = instruction_stage(backend, variant)
    return record(
        *(f"wasm.{check}", stage, backend, variant, value, unit, comparisons),
        subject=subject,
        detail=detail,
    )
