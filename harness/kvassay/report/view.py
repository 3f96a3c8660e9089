"""What the report says, as plain rows for the template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..judging.evidence import DONE, RAN
from ..judging.gate import RUN, Judgement, Verdict
from ..judging.rules import Outcome, Rule
from ..judging.wording import (
    alike,
    conclusion,
    culprits,
    decision,
    figure,
    how_each_ran,
    who,
    worst,
)
from ..records import Record
from .matrix import Matrix

_WORST_SHOWN = 3
PASSES: Final = "PASS"
#: A seed among the arguments of a command; where there is none, the suite's own never change.
_SEED: Final = re.compile(r'"seed": *(\d+)')


@dataclass(frozen=True)
class Evidence:
    """What one rule says about one verdict."""

    who: str
    state: str
    value: str
    comparisons: str
    note: str
    worst: tuple[Record, ...]


@dataclass(frozen=True)
class RuleRow:
    """A rule with its evidence; `state` is the gravest among the verdicts."""

    rule: Rule
    state: str
    worst: str
    comparisons: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Support:
    """A variant of a backend: whether it ran, and what it declares."""

    backend: str
    variant: str
    status: str
    how: str
    promise: str
    build_id: str
    tasks: str
    passed: str


@dataclass(frozen=True)
class Coverage:
    """Of a backend's variants: how many there are, were loaded, and pass with every preset that is
    judged."""

    backend: str
    passed: int
    loaded: int
    total: int


@dataclass(frozen=True)
class Again:
    """How to repeat what a task measured, and what it depended on: see `kvassay.resuming`."""

    checks: str
    command: str
    seed: str
    digest: str
    build: str


@dataclass(frozen=True)
class View:
    """Everything the template prints."""

    decision: str
    conclusion: str
    verdicts: tuple[Verdict, ...]
    matrix: Matrix
    rules: tuple[RuleRow, ...]
    support: tuple[Support, ...]
    coverage: tuple[Coverage, ...]
    stages: tuple[str, ...]
    unmeasured: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[Rule, Sequence[tuple[Record, int]]], ...]
    commands: tuple[Again, ...]
    machine: Mapping[str, Any]
    counts: str

    @classmethod
    def of(cls, judgement: Judgement, records: Sequence[Record]) -> View:
        """The view of a judgement of these records."""
        first = judgement.verdicts[0].stages if judgement.verdicts else ()
        return cls(
            decision=decision(judgement),
            conclusion=conclusion(judgement),
            verdicts=judgement.verdicts,
            matrix=Matrix.of(judgement.verdicts),
            rules=tuple(_rule_row(rule, judgement.verdicts) for rule in judgement.rules),
            support=tuple(_support(judgement, records)),
            coverage=tuple(_coverage(judgement, records)),
            stages=tuple(name for name, _ in first),
            unmeasured=(*_unmeasured(judgement), *_no_figure(records)),
            rejected=tuple(
                (rule, alike(found)[:_WORST_SHOWN]) for rule, found in culprits(judgement)
            ),
            commands=tuple(_commands(records)),
            machine=next((r.detail for r in records if r.check == "run.machine"), {}),
            counts=_counts(records),
        )


def _rule_row(rule: Rule, verdicts: Iterable[Verdict]) -> RuleRow:
    pairs = [(v, o) for v in verdicts for o in v.outcomes if o.rule.name == rule.name]
    states = [outcome.state for _, outcome in pairs]
    gravest = next(
        (s for s in ("reject", "not measured", "pass", "outside scope") if s in states),
        "does not apply",
    )
    top = worst(outcome for _, outcome in pairs)
    return RuleRow(
        rule=rule,
        state=gravest,
        worst=figure(top.value, top.rule) if top else "-",
        comparisons=f"{sum(outcome.comparisons for _, outcome in pairs):,}",
        evidence=tuple(_evidence(verdict, outcome) for verdict, outcome in pairs),
    )


def _evidence(verdict: Verdict, outcome: Outcome) -> Evidence:
    return Evidence(
        who=who(verdict),
        state=outcome.state,
        value=figure(outcome.value, outcome.rule),
        comparisons=f"{outcome.comparisons:,}",
        note=outcome.note,
        worst=outcome.records[:1],
    )


def _support(judgement: Judgement, records: Sequence[Record]) -> Iterable[Support]:
    declared = {(r.backend, r.variant): r for r in records if r.check == "run.target"}
    ran = {(r.backend, r.variant): r for r in records if r.subject == RAN}
    how = {(backend, variant): text for backend, variant, text in how_each_ran(records)}
    for record in records:
        if record.check != "run.availability":
            continue
        key = (record.backend, record.variant)
        detail = declared[key].detail if key in declared else {}
        promise = "-"
        if detail:
            promise = "exact" if detail.get("exact") else f"bounded, {detail.get('bound')}"
        yield Support(
            backend=record.backend,
            variant=record.variant,
            status=str(record.detail.get("status", "")),
            how=how[key],
            promise=promise,
            build_id=str(detail.get("build_id") or "-"),
            tasks=f"{ran[key].comparisons:,}" if key in ran else "-",
            passed=_passed(judgement, key),
        )


def _passed(judgement: Judgement, key: tuple[str, str]) -> str:
    """Judged presets that pass, of how many."""
    judged = _judged(judgement, key)
    return f"{judged.count(PASSES)} of {len(judged)}" if judged else "-"


def _judged(judgement: Judgement, key: tuple[str, str]) -> list[str]:
    return [
        verdict.decision
        for verdict in judgement.verdicts
        if verdict.judged and (verdict.target.backend, verdict.target.variant) == key
    ]


def _coverage(judgement: Judgement, records: Sequence[Record]) -> Iterable[Coverage]:
    known = {(r.backend, r.variant) for r in records if r.check == "run.availability"}
    loaded = {(r.backend, r.variant) for r in records if r.check == "run.target"}
    for backend in sorted({name for name, _ in known | loaded}):
        mine = [key for key in known | loaded if key[0] == backend]
        decisions = [_judged(judgement, key) for key in mine]
        yield Coverage(
            backend=backend,
            passed=sum(bool(found) and set(found) == {PASSES} for found in decisions),
            loaded=sum(key in loaded for key in mine),
            total=len(mine),
        )


def _no_figure(records: Sequence[Record]) -> Iterable[tuple[str, str]]:
    """Figures that a suite could not give, by reason; rules say for themselves what they miss."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in records:
        reason = record.detail.get("reason")
        if record.suite != RUN and record.comparisons <= 0 and reason:
            whom = found.setdefault((record.check, str(reason)), [])
            name = f"{record.backend}/{record.variant}"
            if name not in whom:
                whom.append(name)
    for (check, reason), whom in sorted(found.items()):
        yield check, f"{', '.join(whom)}: {reason}"


def _commands(records: Sequence[Record]) -> Iterable[Again]:
    """A row a command. Records stand before the mark of the task that gave them."""
    found: dict[str, tuple[set[str], Record | None]] = {}
    begin = 0
    for place, record in enumerate(records):
        if record.check == DONE:
            first = max(begin, place - int(record.detail["records"]))
            for mine in records[first:place]:
                if mine.reproduce:
                    found.setdefault(mine.reproduce, (set(), record))[0].add(mine.check)
            begin = place + 1
    for record in records:
        if record.reproduce:
            found.setdefault(record.reproduce, (set(), None))[0].add(record.check)
    for command, (checks, mark) in sorted(found.items(), key=lambda item: sorted(item[1][0])):
        seed = _SEED.search(command)
        yield Again(
            checks=", ".join(sorted(checks)),
            command=command,
            seed=seed[1] if seed else "fixed",
            digest=str(mark.detail["digest"]) if mark else "-",
            build=str(mark.detail["build"])[:12] if mark else "-",
        )


def _unmeasured(judgement: Judgement) -> Iterable[tuple[str, str]]:
    for rule in judgement.rules:
        names = {
            who(verdict): outcome
            for verdict in judgement.verdicts
            for outcome in verdict.outcomes
            if outcome.rule.name == rule.name
            and (
                outcome.state == "not measured"
                or (outcome.state == "outside scope" and outcome.value is None)
            )
        }
        if not names:
            continue
        reasons = sorted({outcome.note or outcome.state for outcome in names.values()})
        everyone = len(names) == len(judgement.verdicts)
        about = "every backend and preset" if everyone else ", ".join(names)
        yield rule.name, f"{about}: {'; '.join(reasons)}"


def _counts(records: Sequence[Record]) -> str:
    measured = [r for r in records if r.suite != "run"]
    comparisons = sum(r.comparisons for r in measured)
    return f"{len(measured):,} records, {comparisons:,} comparisons"
