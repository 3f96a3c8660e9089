"""What changed between two files of records: verdicts, tracked figures, and everything else.

`Comparison.of` is what `kvassay compare` shows; `regression_records` is what `kvassay gate
--baseline` adds to its own records, so that the rule `run.regressions` judges them like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ..presets import PRESETS
from ..records import Record
from ..statistics.noise import LEAST_PAIRS, Ratio, alarms, chance, interval, resolves
from ..suite import Target
from .gate import PASS, REJECT, RUN, UNJUDGED, Judgement, Question, Verdict, concerns, judge
from .tracks import Track, Tracks, tracks

ChangeState = Literal["regressed", "improved", "unchanged", "missing", "new"]
Key = tuple[str, str, str, str, str]
_GRAVITY: Final = {"pass": 0, "not measured": 1, "reject": 2}


@dataclass(frozen=True)
class Change:
    """One tracked figure then and now.

    `before` and `after` are the figures, of ratios their medians; None where there is none.
    `comparisons` is what the newer one rests on, 0 where there is nothing to compare.
    """

    track: Track
    record: Record
    before: float | None
    after: float | None
    state: ChangeState
    comparisons: int
    note: str = ""


@dataclass(frozen=True)
class RuleChange:
    """A rule whose state differs, or a verdict (`name` is then "verdict")."""

    target: Target
    preset: str
    name: str
    before: str
    after: str
    worse: bool


@dataclass(frozen=True)
class Figure:
    """A figure that no track follows: shown, never judged."""

    record: Record
    before: float

    @property
    def growth(self) -> float:
        """Relative change; infinite from zero."""
        if self.record.value == self.before:
            return 0.0
        return self.record.value / self.before - 1 if self.before else math.inf


def key(record: Record) -> Key:
    """What identifies a record in a file."""
    return (record.check, record.backend, record.variant, record.preset, record.subject)


def follow(
    before: Iterable[Record], after: Iterable[Record], book: Tracks | None = None
) -> list[Change]:
    """Every tracked figure of either file. Ratios are compared all together, so that the rate of
    false alarms is that of the whole file."""
    book = book or tracks()
    then, now = ({key(r): r for r in records} for records in (before, after))
    found: list[Change] = []
    for track in book.tracks:
        keys = [k for k, r in {**then, **now}.items() if track.follows(r)]
        found += [_change(track, then.get(k), now.get(k)) for k in keys]
    return _settle(found, then, now, book)


def _change(track: Track, then: Record | None, now: Record | None) -> Change:
    """Exact figures are decided here; ratios stay "unchanged" until `_settle`."""
    old, new = (None if r is None else track.read(r) for r in (then, now))
    record = now or then
    assert record is not None
    if track.kind == "ratio":
        old, new = (_long_enough(series) for series in (old, new))
        middles = [None if series is None else interval(series).median for series in (old, new)]
        counted = len(new or ())
    else:
        middles = [None if number is None else float(number) for number in (old, new)]
        counted = record.comparisons
    was, is_ = middles
    if is_ is None:
        note = "measured in the baseline, not now" if was is not None else "not measured"
        return Change(track, record, was, None, "missing", 0, note)
    if was is None:
        return Change(track, record, None, is_, "new", counted)
    if not math.isfinite(was):
        note = f"the baseline's figure is {was:g}"
        return Change(track, record, was, is_, "missing", 0, note)
    state = _exact_state(track, was, is_) if track.kind == "exact" else "unchanged"
    return Change(track, record, was, is_, state, counted)


def _long_enough(series: Any) -> list[float] | None:
    return series if isinstance(series, list) and len(series) >= LEAST_PAIRS else None


def _exact_state(track: Track, before: float, after: float) -> ChangeState:
    if math.isnan(after) or after > before * (1 + track.tolerance):
        return "regressed"
    return "improved" if after * (1 + track.tolerance) < before else "unchanged"


def _settle(
    changes: Sequence[Change], then: Mapping[Key, Record], now: Mapping[Key, Record], book: Tracks
) -> list[Change]:
    """The states of ratios: ranks decide, over all of them at once.

    "Unchanged" is said only where the slowdown in question would have been found; where the
    machine was too noisy for that, nothing was compared.
    """
    pairs: dict[int, tuple[list[float], list[float]]] = {}
    for number, change in enumerate(changes):
        if change.track.kind == "ratio" and change.state == "unchanged":
            k = key(change.record)
            pairs[number] = (change.track.read(now[k]), change.track.read(then[k]))
    margins = {n: changes[n].track.tolerance for n in pairs}
    rate = book.false_alarms
    slower = alarms([chance(a, b, margins[n]) for n, (a, b) in pairs.items()], rate)
    faster = alarms([chance(b, a, margins[n]) for n, (a, b) in pairs.items()], rate)
    wanted = (book.slowdown, book.power, rate / max(1, len(pairs)))
    clear = {n: resolves(a, b, margins[n], *wanted) for n, (a, b) in pairs.items()}
    settled = list(changes)
    for number, up, down in zip(pairs, slower, faster, strict=True):
        change, (new, old) = changes[number], pairs[number]
        state: ChangeState = "regressed" if up else "improved" if down else "unchanged"
        note = f"medians {_span(interval(old))}, now {_span(interval(new))}"
        counted = change.comparisons
        if state == "unchanged" and not clear[number]:
            state, counted = "missing", 0
            note = f"too noisy to find {book.slowdown:.0%}: {note}"
        settled[number] = replace(change, state=state, comparisons=counted, note=note)
    return settled


def _span(found: Ratio) -> str:
    return f"{found.median:.3g} [{found.low:.3g}, {found.high:.3g}]"


def regression_records(
    before: Sequence[Record], after: Sequence[Record], question: Question
) -> list[Record]:
    """A record for each tracked figure of the targets and presets in question: 1 if it regressed.

    A figure that the baseline has and this run lacks, or a target of which the baseline has none,
    gives a record without a comparison, which never passes. Figures of suites that were not asked
    for are no part of the question.
    """
    if not question.held:
        return []
    source = question.baseline
    wanted = [r for r in before if _asked(r, question)]
    changes = [c for c in follow(wanted, after) if c.before is not None]
    records = [_record(change, source) for change in changes]
    for target in question.targets:
        if not any(concerns(r, target, r.preset) for r in records):
            nothing = f"the baseline {source} has no tracked figure of it"
            records.append(_verdict_record(target, 0.0, 0, {"error": nothing}))
    return records


def _asked(record: Record, question: Question) -> bool:
    targets = {(target.backend, target.variant) for target in question.targets}
    return (
        (record.backend, record.variant) in targets
        and (not record.preset or record.preset in question.presets)
        and (not question.suites or record.suite in question.suites)
    )


def _record(change: Change, source: str) -> Record:
    record = change.record
    return Record(
        suite=RUN,
        check="run.regressions",
        stage=record.stage,
        backend=record.backend,
        variant=record.variant,
        value=float(change.state == "regressed"),
        unit="figures",
        comparisons=change.comparisons,
        preset=record.preset,
        subject=f"{record.check} {record.subject}".strip(),
        detail={
            "baseline": source,
            "before": change.before,
            "after": change.after,
            "tolerance": change.track.tolerance,
            "kind": change.track.kind,
            "state": change.state,
            "note": change.note,
        },
        reproduce=record.reproduce,
    )


def _verdict_record(
    target: Target, value: float, comparisons: int, detail: dict[str, Any]
) -> Record:
    return Record(
        suite=RUN,
        check="run.regressions",
        stage="",
        backend=target.backend,
        variant=target.variant,
        value=value,
        unit="figures",
        comparisons=comparisons,
        detail=detail,
    )


@dataclass(frozen=True)
class Comparison:
    """Two files of records side by side."""

    before: Judgement
    after: Judgement
    verdicts: tuple[RuleChange, ...]
    changes: tuple[Change, ...]
    figures: tuple[Figure, ...]
    surroundings: tuple[tuple[str, str, str], ...]
    """Name, then, now: of the machine, the packages and the builds, where they differ."""

    @classmethod
    def of(cls, before: Sequence[Record], after: Sequence[Record]) -> Comparison:
        """Compare two runs, each judged by the question recorded with it."""
        tracked = follow(before, after)
        followed = {key(change.record) for change in tracked}
        then = {key(r): r for r in before if r.suite != RUN}
        shared = [r for r in after if key(r) in then and key(r) not in followed]
        moved = [Figure(r, then[key(r)].value) for r in shared if _differs(r, then[key(r)])]
        first, second = judge(before), judge(after)
        return cls(
            first,
            second,
            tuple(_verdict_changes(first, second)),
            tuple(tracked),
            tuple(sorted(moved, key=lambda figure: -abs(figure.growth))),
            tuple(_surroundings(before, after)),
        )

    @property
    def regressions(self) -> list[str]:
        """What got worse, one line each; baselines and controls are shown, not judged."""
        lines = [
            f"{c.target.backend}/{c.target.variant} {c.preset}: {c.name}: {c.before}, now {c.after}"
            for c in self.verdicts
            if c.worse
        ]
        for change in self.changes:
            record = change.record
            if change.state == "regressed" and _judged(record.preset):
                who = f"{record.backend}/{record.variant} {record.preset}".strip()
                lines.append(f"{who}: {record.check} {record.subject}".strip())
        return lines

    @property
    def exit_status(self) -> int:
        """0 nothing got worse, 1 something did, 2 nothing could be compared."""
        if self.regressions:
            return REJECT
        common = {(v.target, v.preset) for v in self.before.verdicts} & {
            (v.target, v.preset) for v in self.after.verdicts
        }
        compared = any(change.state not in ("missing", "new") for change in self.changes)
        return PASS if common or compared else UNJUDGED


def _judged(preset: str) -> bool:
    return preset not in PRESETS or PRESETS[preset].judged


def _differs(a: Record, b: Record) -> bool:
    return a.value != b.value and not (math.isnan(a.value) and math.isnan(b.value))


def _verdict_changes(before: Judgement, after: Judgement) -> Iterable[RuleChange]:
    then = {(v.target, v.preset): v for v in before.verdicts}
    for verdict in after.verdicts:
        old = then.get((verdict.target, verdict.preset))
        if old is None:
            continue
        yield _rule_change(verdict, "verdict", old.decision, verdict.decision)
        states = {outcome.rule.name: outcome.state for outcome in old.outcomes}
        for outcome in verdict.outcomes:
            state = states.get(outcome.rule.name, outcome.state)
            if state != outcome.state:
                yield _rule_change(verdict, outcome.rule.name, state, outcome.state)


def _rule_change(verdict: Verdict, name: str, before: str, after: str) -> RuleChange:
    old, new = (_GRAVITY.get(state.lower(), 0) for state in (before, after))
    worse = new > old and verdict.judged
    return RuleChange(verdict.target, verdict.preset, name, before, after, worse)


def _surroundings(
    before: Sequence[Record], after: Sequence[Record]
) -> Iterable[tuple[str, str, str]]:
    then, now = _facts(before), _facts(after)
    for name in dict.fromkeys((*then, *now)):
        if then.get(name) != now.get(name):
            yield name, then.get(name, "-"), now.get(name, "-")


def _facts(records: Sequence[Record]) -> dict[str, str]:
    """Machine, packages and builds as texts."""
    facts: dict[str, str] = {}
    for record in records:
        if record.check == "run.machine":
            for name, value in record.detail.items():
                if isinstance(value, Mapping):
                    facts |= {f"{name} {k}": str(v) for k, v in value.items()}
                else:
                    facts[name] = " ".join(value) if isinstance(value, list) else str(value)
        if record.check == "run.target":
            name = f"build of {record.backend}/{record.variant}"
            facts[name] = str(record.detail.get("build_id") or "-")
    return facts
