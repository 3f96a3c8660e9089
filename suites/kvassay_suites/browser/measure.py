"""What the tasks of the browser suite call: measurements in engines, and records of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import kvassay
from kvassay.assets.web import web_assets
from kvassay.errors import UnavailableError
from kvassay.records import Record
from kvassay.registry import REFERENCE
from kvassay.suite import Depth

from ..common.specs import record
from ..golden.cases import CASES as GOLDEN
from ..golden.measure import compare as compare_golden
from ..parity.grid import cases, page_cases, preset_cases
from ..parity.scenario import Result, run_case
from . import sessions, timing
from .engines import BROWSERS, Engine, candidates, running
from .link import EngineError
from .remote import RemoteBackend

_BROWSER_STAGE: Final = "browser"
#: Node is no browser: what runs there counts for the stages before.
_NODE_STAGES: Final = {"scalar": "scalar WASM"}
_NODE_STAGE: Final = "SIMD128"
_GROWTHS: Final = "growths after the first session"
#: Engines whose compiler is V8, as the promise on speed names them.
_TIMED: Final = ("chromium", "node")


@dataclass(frozen=True)
class Ready:
    """A variant at work in an engine."""

    engine: Engine
    backend: RemoteBackend
    agent: str

    @property
    def detail(self) -> dict[str, Any]:
        """What was measured in, for a record's evidence."""
        return {
            "engine": self.engine.label,
            "agent": self.agent,
            "module": self.backend.module,
            "build_id": self.backend.build_id,
        }


@dataclass
class Visit:
    """A target in the engines of a group; why it was not measured in some."""

    backend: str
    variant: str
    group: str
    reasons: dict[str, str] = field(default_factory=dict)
    measured: int = 0

    @property
    def stage(self) -> str:
        """The stage that a measurement in this group speaks for."""
        if self.group == "browsers":
            return _BROWSER_STAGE
        return _NODE_STAGES.get(self.variant, _NODE_STAGE)

    def engines(self) -> Iterator[Ready]:
        """Each engine of the group in which the variant runs, started for the loop's body."""
        for name in BROWSERS if self.group == "browsers" else ("node",):
            for engine in candidates(name, self.variant):
                if engine.reason:
                    self.reasons[engine.label] = engine.reason
                    continue
                with running(engine, web_assets()[self.backend]) as link:
                    try:
                        backend = RemoteBackend(link, engine.name, self.variant)
                    except UnavailableError as error:
                        self.reasons[engine.label] = str(error)
                        continue
                    _check_module(self, backend)
                    self.measured += 1
                    yield Ready(engine, backend, link.agent)
                break

    def record(
        self,
        check: str,
        ready: Ready,
        value: float,
        unit: str,
        comparisons: int,
        what: str = "",
        **detail: Any,
    ) -> Record:
        """A record of this target in one engine."""
        return record(
            check,
            self.stage,
            self.backend,
            self.variant,
            value,
            unit,
            comparisons,
            subject=" ".join(filter(None, (f"{ready.engine.label}:", what))).rstrip(":"),
            detail={**ready.detail, **detail},
        )

    def missing(self, check: str, unit: str) -> list[Record]:
        """Where no browser measured anything: a record that says so, and never passes.

        Node may be missing: what it lacks is in the records of `run.engine`.
        """
        found = [
            record(
                *("run.engine", "", self.backend, self.variant, 0, "runs", 1),
                subject=name,
                detail={"reason": reason},
            )
            for name, reason in self.reasons.items()
        ]
        if self.group == "browsers" and not self.measured:
            found.append(
                record(
                    *(check, self.stage, self.backend, self.variant, 0, unit, 0),
                    subject="no browser",
                    detail={"reasons": dict(self.reasons)},
                )
            )
        return found


def list_engines(names: Sequence[str]) -> list[Record]:
    """Which engines there are, and why others are not."""
    return [
        record(
            *("run.engine", "", "", "", not engine.reason, "runs", 1),
            subject=engine.label,
            detail={"program": engine.program, "reason": engine.reason},
        )
        for name in names
        for engine in candidates(name, "")[:1]
    ]


def measure_parity(
    backend: str, variant: str, group: str, depth: Depth, presets: Sequence[str]
) -> list[Record]:
    """Golden bytes and parity cases: outputs come back as raw bytes and are compared here."""
    visit, records = Visit(backend, variant, group), []
    reference = kvassay.load(REFERENCE)
    for ready in visit.engines():
        for what, result in (
            ("golden", _golden(ready.backend, depth)),
            ("records", _cases(ready.backend, reference, depth, presets)),
            ("relaxed dot", _relaxed_dot(ready.backend)),
        ):
            if result is not None:
                records.append(
                    visit.record(
                        *("browser.mismatches", ready, result.mismatches, "values"),
                        *(result.comparisons, what),
                        first=result.first,
                    )
                )
    return [*records, *visit.missing("browser.mismatches", "values")]


def measure_sessions(
    backend: str, variant: str, group: str, depth: Depth, presets: Sequence[str]
) -> list[Record]:
    """Growth of linear memory after the first of a hundred sessions, and its size."""
    visit, records = Visit(backend, variant, group), []
    for ready in visit.engines():
        found = sessions.run(ready.backend, sessions.SESSIONS[depth])
        growth = ("wasm.growth_events", ready, found.growths, _GROWTHS, found.sessions - 1)
        records += [
            visit.record(*growth, **found.detail),
            visit.record("browser.memory_bytes", ready, found.bytes, "bytes", found.sessions),
            visit.record(
                *("browser.mismatches", ready, found.mismatches, "values", found.comparisons),
                "outputs of the last session",
            ),
        ]
    return [*records, *visit.missing("wasm.growth_events", _GROWTHS)]


def measure_speed(
    backend: str, variant: str, group: str, depth: Depth, presets: Sequence[str]
) -> list[Record]:
    """Time of a fused decode step beside the same module in wasmtime, by turns."""
    visit, records = Visit(backend, variant, group), []
    shape = timing.SHAPES[depth]
    own = kvassay.load(backend, variant)
    unit = "of the time in wasmtime"
    for ready in visit.engines():
        found = timing.beside(ready.backend, own, shape)
        detail = {**found.evidence, "shape": shape.describe()}
        # Times of a machine that was busy with something else are no measurement.
        samples = 0 if found.problem else len(found.engine)
        each = found.median * 1e9 / shape.tokens
        records.append(
            visit.record("browser.token_time", ready, each, "ns a token", samples, **detail)
        )
        if ready.engine.name in _TIMED:
            records.append(
                visit.record("browser.time_ratio", ready, found.ratio, unit, samples, **detail)
            )
    return [*records, *visit.missing("browser.time_ratio", unit)]


def _check_module(visit: Visit, backend: RemoteBackend) -> None:
    path = web_assets()[visit.backend].modules[visit.variant]
    if hashlib.sha256(path.read_bytes()).hexdigest() != backend.module:
        raise EngineError(f"the engine loaded another module than {path.name}; rebuild, and retry")


def _golden(backend: RemoteBackend, depth: Depth) -> Result:
    names = list(GOLDEN)[:: 3 if depth == "quick" else 1]
    result = Result()
    for _, _, mismatches, comparisons, first in compare_golden(backend, names):
        result.add(Result(comparisons, mismatches, first))
    return result


def _cases(
    backend: RemoteBackend, reference: kvassay.Backend, depth: Depth, presets: Sequence[str]
) -> Result:
    grid = {"quick": cases("quick")[::4], "default": cases("quick"), "full": cases("default")}
    found: list[Mapping[str, Any]] = [*page_cases(depth), *grid[depth]]
    for name in presets:
        found += preset_cases(name, "default" if depth == "full" else "quick")
    result = Result()
    for case in found:
        result.add(run_case(backend, reference, case))
    return result


def _relaxed_dot(backend: RemoteBackend) -> Result | None:
    """The engine's own dot at the extremes of our operands, where the variant uses it."""
    if backend.variant != "relaxed":
        return None
    head, _ = backend.call("relaxed")
    return Result(head["comparisons"], head["mismatches"], head["first"])
