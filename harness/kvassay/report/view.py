"""What the report says, as plain rows for the template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..gate import Judgement, Verdict
from ..records import Record
from ..rules import Outcome, Rule
from ..wording import (
    alike,
    conclusion,
    culprits,
    decision,
    figure,
    how_each_ran,
    who,
    worst,
)

_WORST_SHOWN = 3


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


@dataclass(frozen=True)
class View:
    """Everything the template prints."""

    decision: str
    conclusion: str
    verdicts: tuple[Verdict, ...]
    rules: tuple[RuleRow, ...]
    support: tuple[Support, ...]
    stages: tuple[str, ...]
    unmeasured: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[Rule, Sequence[tuple[Record, int]]], ...]
    commands: tuple[tuple[str, str], ...]
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
            rules=tuple(_rule_row(rule, judgement.verdicts) for rule in judgement.rules),
            support=tuple(_support(records)),
            stages=tuple(name for name, _ in first),
            unmeasured=tuple(_unmeasured(judgement)),
            rejected=tuple(
                (rule, alike(found)[:_WORST_SHOWN]) for rule, found in culprits(judgement)
            ),
            commands=tuple(sorted({(r.check, r.reproduce) for r in records if r.reproduce})),
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
        worst=figure(top.value if top else None),
        comparisons=f"{sum(outcome.comparisons for _, outcome in pairs):,}",
        evidence=tuple(_evidence(verdict, outcome) for verdict, outcome in pairs),
    )


def _evidence(verdict: Verdict, outcome: Outcome) -> Evidence:
    return Evidence(
        who=who(verdict),
        state=outcome.state,
        value=figure(outcome.value),
        comparisons=f"{outcome.comparisons:,}",
        note=outcome.note,
        worst=outcome.records[:1],
    )


def _support(records: Sequence[Record]) -> Iterable[Support]:
    declared = {(r.backend, r.variant): r for r in records if r.check == "run.target"}
    ran = {(r.backend, r.variant): r for r in records if r.subject == "tasks that ran"}
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
