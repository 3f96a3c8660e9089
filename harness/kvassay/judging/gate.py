"""The gate: verdicts over records, one for each backend, variant and preset, and the exit status.

Pure: a file of records judged again gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ..errors import RecordError
from ..presets import PRESETS
from ..records import Record
from ..suite import Depth, Target
from .requirements import Case, binds, in_words
from .rules import Outcome, Rule, Rulebook, evaluate, rulebook

PASS, REJECT, UNJUDGED = 0, 1, 2
#: Roles of presets whose verdicts set the exit status.
JUDGED: Final = ("product", "experiment")
Decision = Literal["PASS", "REJECT", "NOT MEASURED"]
#: The suite that the runner's own records belong to.
RUN: Final = "run"


@dataclass(frozen=True)
class Verdict:
    """One backend variant with one preset. `stage` is the highest stage passed, "" if none."""

    target: Target
    preset: str
    role: str
    decision: Decision
    outcomes: tuple[Outcome, ...]
    stage: str
    stages: tuple[tuple[str, str], ...]

    @property
    def judged(self) -> bool:
        """Whether it sets the exit status."""
        return self.role in JUDGED

    def named(self, state: str) -> tuple[str, ...]:
        """Names of the rules in that state."""
        return tuple(o.rule.name for o in self.outcomes if o.state == state)


@dataclass(frozen=True)
class Judgement:
    """What the gate says. `problem` explains why nothing could be judged, "" otherwise."""

    scope: str
    suites: tuple[str, ...]
    rules: tuple[Rule, ...]
    verdicts: tuple[Verdict, ...]
    exit_status: int
    problem: str = ""


@dataclass(frozen=True)
class Question:
    """What was asked: whom to judge, with which presets, by which rules. Empty suites: all.

    `baseline` names the records that the run is held to, `tensors` the file of captured tensors, ""
    if none. With `judge_named` every preset is judged, whatever its role: for a backend that has
    only what is a baseline here.
    """

    scope: str
    targets: tuple[Target, ...]
    presets: tuple[str, ...]
    suites: tuple[str, ...] = ()
    depth: Depth = "default"
    baseline: str = ""
    tensors: str = ""
    judge_named: bool = False

    def role(self, preset: str) -> str:
        """The role that a preset has in the verdicts."""
        if self.judge_named:
            return "product"
        return PRESETS[preset].role if preset in PRESETS else "experiment"

    def judges(self, preset: str) -> bool:
        """Whether a verdict on this preset sets the exit status."""
        return self.role(preset) in JUDGED

    def to_detail(self) -> dict[str, Any]:
        """The detail of the `run.request` record that keeps the question with the answers."""
        return {
            "scope": self.scope,
            "depth": self.depth,
            "targets": [[target.backend, target.variant] for target in self.targets],
            "presets": list(self.presets),
            "suites": list(self.suites),
            "baseline": self.baseline,
            "tensors": self.tensors,
            "judge_named": self.judge_named,
        }

    @classmethod
    def of(cls, records: Iterable[Record]) -> Question:
        """The question that records answer: the recorded one, or every target and preset found."""
        found = list(records)
        for record in found:
            if record.check == "run.request":
                return cls._from_detail(record)
        targets = {(r.backend, r.variant) for r in found if r.backend and r.variant}
        presets = [name for name in PRESETS if any(r.preset == name for r in found)]
        return cls(
            scope="default",
            targets=tuple(Target(*pair) for pair in sorted(targets)),
            presets=tuple(presets or PRESETS),
        )

    @classmethod
    def _from_detail(cls, record: Record) -> Question:
        try:
            detail = record.detail
            return cls(
                scope=str(detail["scope"]),
                depth=detail["depth"],
                targets=tuple(Target(str(b), str(v)) for b, v in detail["targets"]),
                presets=tuple(str(name) for name in detail["presets"]),
                suites=tuple(str(name) for name in detail["suites"]),
                baseline=str(detail.get("baseline", "")),
                tensors=str(detail.get("tensors", "")),
                judge_named=bool(detail.get("judge_named", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"run.request: its detail cannot be read ({error!r})") from None


def judge(
    records: Iterable[Record], question: Question | None = None, book: Rulebook | None = None
) -> Judgement:
    """Judge records. `question` None takes the one recorded with them.

    Raises RecordError for a record of a stage that does not exist.
    """
    found = list(records)
    book = book or rulebook()
    question = question or Question.of(found)
    _check_stages(found, book)
    asked = (RUN, *question.suites)
    rules = tuple(
        rule for rule in book.rules if not question.suites or not set(asked).isdisjoint(rule.suites)
    )
    verdicts = tuple(
        _verdict(target, preset, found, question, rules, book)
        for target in question.targets
        for preset in question.presets
    )
    problem = _problem(found, question, verdicts)
    return Judgement(
        scope=question.scope,
        suites=question.suites,
        rules=rules,
        verdicts=verdicts,
        exit_status=UNJUDGED if problem else _exit_status(verdicts),
        problem=problem,
    )


def concerns(record: Record, target: Target, preset: str) -> bool:
    """Whether a record speaks about a target with a preset: an empty field speaks about all."""
    return (
        record.backend in ("", target.backend)
        and record.variant in ("", target.variant)
        and record.preset in ("", preset)
    )


def case_of(records: Iterable[Record], target: Target, preset: str, question: Question) -> Case:
    """What the backend declares; exact, the stricter promise, if that is not recorded."""
    asked = Case(preset, baseline=bool(question.baseline), tensors=bool(question.tensors))
    for record in records:
        if record.check == "run.target" and concerns(record, target, record.preset):
            detail = record.detail
            return replace(
                asked,
                exact=bool(detail.get("exact", True)),
                build_id=detail.get("build_id"),
                evidence=detail.get("evidence", {}),
            )
    return asked


def _verdict(
    target: Target,
    preset: str,
    records: Sequence[Record],
    question: Question,
    rules: Sequence[Rule],
    book: Rulebook,
) -> Verdict:
    scope = question.scope
    case = case_of(records, target, preset, question)
    mine = [record for record in records if concerns(record, target, preset)]
    outcomes = tuple(_outcome(rule, mine, scope, case) for rule in rules)
    needed = [rule for rule in rules if binds(rule.requires, case) and rule.in_scope(scope)]
    stages = _ladder(mine, needed, book)
    passed = [name for name, state in stages if state == "passed"]
    states = {outcome.state for outcome in outcomes}
    decision: Decision = "PASS" if "pass" in states else "NOT MEASURED"
    if "not measured" in states:
        decision = "NOT MEASURED"
    if "reject" in states:
        decision = "REJECT"
    role = question.role(preset)
    return Verdict(
        target, preset, role, decision, outcomes, passed[-1] if passed else "", tuple(stages)
    )


def _outcome(rule: Rule, records: Sequence[Record], scope: str, case: Case) -> Outcome:
    if not binds(rule.requires, case):
        return Outcome(rule, "does not apply", note=f"only for: {in_words(rule.requires)}")
    outcome = evaluate(rule, records)
    if rule.in_scope(scope):
        return outcome
    note = f"{outcome.state} in scope {rule.scope}"
    return Outcome(rule, "outside scope", outcome.value, outcome.comparisons, outcome.records, note)


def _ladder(
    records: Sequence[Record], rules: Sequence[Rule], book: Rulebook
) -> list[tuple[str, str]]:
    """(stage, passed | failed | not measured | not reached | not counted), in order.

    A stage passes if it has a measurement and no rule rejects on its records alone. After the
    first that failed, or that is required and has none, nothing counts.
    """
    ladder = []
    broken = False
    for stage in book.stages:
        here = [record for record in records if record.stage == stage.name]
        measured = any(r.comparisons > 0 for r in here)
        failed = any(evaluate(rule, here).state == "reject" for rule in rules)
        if not here and not stage.required:
            state = "not reached"
        elif broken:
            state = "not counted"
        else:
            state = "failed" if failed else "passed" if measured else "not measured"
            broken = state != "passed"
        ladder.append((stage.name, state))
    return ladder


def _check_stages(records: Iterable[Record], book: Rulebook) -> None:
    known = {stage.name for stage in book.stages}
    for record in records:
        if record.suite != RUN and record.stage not in known:
            raise RecordError(
                f"record {record.check} of {record.backend}/{record.variant}: "
                f"no stage {record.stage!r}; stages: {', '.join(sorted(known))}"
            )


def _problem(records: Sequence[Record], question: Question, verdicts: Sequence[Verdict]) -> str:
    """Why there is nothing to judge: a gate that measured nothing fails."""
    crashed = any(r.check == "run.errors" and r.comparisons > 0 and r.value > 0 for r in records)
    measured = any(record.suite != RUN and record.comparisons > 0 for record in records)
    if not (measured or crashed):
        return "nothing was measured: no record with a comparison"
    if not question.targets:
        return "no backend to judge: none runs here, or none was recorded"
    if not question.presets:
        return "no preset to judge"
    if not any(verdict.judged for verdict in verdicts):
        names = ", ".join(question.presets)
        return f"only baselines and controls ({names}) were asked for: they are not judged"
    return ""


def _exit_status(verdicts: Iterable[Verdict]) -> int:
    decisions = {verdict.decision for verdict in verdicts if verdict.judged}
    if "REJECT" in decisions:
        return REJECT
    return PASS if decisions == {"PASS"} else UNJUDGED
