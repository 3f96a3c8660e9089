"""The gate: verdicts over records, one for each backend, variant and preset, and the exit status.

Pure: a file of records judged again gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from ..errors import RecordError
from ..presets import PRESETS
from ..records import Record
from ..suggest import did_you_mean
from ..suite import Depth, Target
from .evidence import RUN as RUN
from .evidence import check_records
from .requirements import Case, binds, in_words
from .rules import SCOPES, Outcome, Rule, Rulebook, evaluate, rulebook
from .tracks import tracks

PASS, REJECT, UNJUDGED = 0, 1, 2
#: Roles of presets whose verdicts set the exit status.
JUDGED: Final = ("product", "experiment")
Decision = Literal["PASS", "REJECT", "NOT MEASURED"]
#: Fields of a question that its first records had not.
_LATER: Final = ("baseline", "tensors", "judge_named")


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

    def __post_init__(self) -> None:
        for name, value, known in (
            ("scope", self.scope, SCOPES),
            ("depth", self.depth, get_args(Depth)),
        ):
            if value not in known:
                raise RecordError(f"no {name} {value!r}{did_you_mean(str(value), known)}")

    @property
    def held(self) -> bool:
        """Whether a baseline has a say: of a suite that was asked for, figures are tracked."""
        tracked = {track.check.partition(".")[0] for track in tracks().tracks}
        return bool(self.baseline) and (not self.suites or not tracked.isdisjoint(self.suites))

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
        known = cls("default", (), ()).to_detail()
        detail = {**{name: known[name] for name in _LATER}, **record.detail}
        for name in {**known, **detail}:
            if name not in known or type(detail.get(name)) is not type(known[name]):
                raise RecordError(f"run.request: cannot explain {name} {detail.get(name)!r}")
        for name, is_one in (("targets", _is_pair), ("presets", _is_text), ("suites", _is_text)):
            if not all(map(is_one, detail[name])):
                raise RecordError(f"run.request: {name} {detail[name]!r} are not what it lists")
            detail[name] = tuple(detail[name])
        detail["targets"] = tuple(Target(*pair) for pair in detail["targets"])
        return cls(**detail)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_text, value))


def judge(
    records: Iterable[Record], question: Question | None = None, book: Rulebook | None = None
) -> Judgement:
    """Judge records. `question` None takes the one recorded with them.

    Raises RecordError for a record that no measurement gives.
    """
    found = list(records)
    book = book or rulebook()
    question = question or Question.of(found)
    check_records(found, book)
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
    asked = Case(preset, baseline=question.held, tensors=bool(question.tensors))
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


def _problem(records: Sequence[Record], question: Question, verdicts: Sequence[Verdict]) -> str:
    """Why there is nothing to judge: a gate that measured nothing fails."""
    crashed = any(r.check == "run.errors" and r.comparisons > 0 and r.value > 0 for r in records)
    measured = any(record.suite != RUN and record.comparisons > 0 for record in records)
    if not (measured or crashed):
        return "nothing was measured: no record with a comparison"
    missing = set(question.suites) - {record.suite for record in records}
    if missing and not crashed:
        return f"suite {min(missing)!r} was asked for, and there is no record of it"
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
