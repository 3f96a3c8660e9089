"""Verdicts, figures and records in words: the same in the terminal and in the report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from ..records import Record
from .evidence import RAN
from .gate import Judgement, Verdict
from .rules import Outcome, Rule


def decision(judgement: Judgement) -> str:
    """PASS, REJECT or NOT MEASURED: the exit status in words."""
    return ("PASS", "REJECT", "NOT MEASURED")[judgement.exit_status]


def conclusion(judgement: Judgement) -> str:
    """One line: what decided the exit status."""
    narrowed = f", only the rules of {', '.join(judgement.suites)}" if judgement.suites else ""
    where = f"{decision(judgement)} (scope {judgement.scope}{narrowed})"
    if judgement.problem:
        return f"{where}: {judgement.problem}"
    counts = Counter(verdict.decision for verdict in judgement.verdicts if verdict.judged)
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"{where}: {parts}{_headline(judgement)}"


#: Rules of `foreign` broken by a kernel whatever its codes are, and by coarse codes.
_KERNEL: Final = {"foreign.relative_error", "foreign.chunking"}
_SHAPES: Final = "foreign.shapes_refused"
_CODES: Final = {"foreign.tiny_top1", "foreign.tiny_logit_drift", "foreign.next_token_kl"}


def _headline(judgement: Judgement) -> str:
    """Whose fault a rejected format is, and which head dims nothing is said of; a wrong kernel says
    nothing about its codes."""
    rejected = {name for verdict in judgement.verdicts for name in verdict.named("reject")}
    right = all(set(v.named("pass")) >= _KERNEL for v in judgement.verdicts if v.named("reject"))
    said = ""
    if rejected & _KERNEL:
        said = f"; kernel wrong{_first_wrong(judgement)}"
    elif rejected & _CODES and right:
        said = "; kernel right and codes too coarse"
    return said + _refused(judgement)


def _first_wrong(judgement: Judgement) -> str:
    """The fewest tokens at which a kernel was seen to be wrong, with the head dim."""
    found = [r.detail.get("first_wrong") for _, records in culprits(judgement) for r in records]
    first = min(((one["token"], one["head_dim"]) for one in found if one), default=None)
    return f", first at token {first[0]} of head dim {first[1]}" if first else ""


def _refused(judgement: Judgement) -> str:
    """Head dims that formats refuse, with the reason of the first."""
    reasons = {
        record.detail["head_dim"]: record.detail["refused"]
        for verdict in judgement.verdicts
        for outcome in verdict.outcomes
        if outcome.rule.name == _SHAPES
        for record in outcome.records
        if "refused" in record.detail
    }
    if not reasons:
        return ""
    return f"; refused: head dim {', '.join(map(str, sorted(reasons)))} ({min(reasons.items())[1]})"


def who(verdict: Verdict) -> str:
    """Whom a verdict is about."""
    return f"{verdict.target.backend}/{verdict.target.variant} {verdict.preset}"


def how_each_ran(records: Iterable[Record]) -> Iterable[tuple[str, str, str]]:
    """(backend, variant, how) for every known variant: ran natively, emulated, or not and why."""
    found = list(records)
    ran = {(r.backend, r.variant): r.comparisons for r in found if r.subject == RAN}
    for record in found:
        if record.check == "run.availability":
            tasks = ran.get((record.backend, record.variant), 0)
            status, reason = str(record.detail["status"]), str(record.detail["reason"])
            yield record.backend, record.variant, _how(status, reason, tasks)


def _how(status: str, reason: str, tasks: int) -> str:
    emulated = status == "emulated"
    if tasks:
        return f"ran emulated by {reason}" if emulated else "ran natively"
    if status == "ready" or emulated:
        hint = "; kvassay parity runs it emulated" if emulated else ""
        return f"not run: not asked for{hint}"
    return f"not run: {status}" + (f", {reason}" if reason else "")


def describe(record: Record, rule: Rule | None = None) -> str:
    """A record in one line: its error, or its figure and what its suite says that it found."""
    error, finding = (record.detail.get(name) for name in ("error", "finding"))
    measured = f"{figure(record.value, rule)} {record.unit}, n = {record.comparisons:,}"
    measured += f": {finding}" if finding else ""
    return f"{owner(record)}: {error or measured}"


def owner(record: Record) -> str:
    """Whom and what a record is about, without its check."""
    backend = f"{record.backend}/{record.variant}" if record.backend else "all backends"
    return " ".join(part for part in (backend, record.preset, record.subject) if part)


def about(record: Record) -> str:
    """Check, owner and subject of a record: its place in a file."""
    return f"{record.check}: {owner(record)}"


def figure(value: float | None, rule: Rule | None = None) -> str:
    """A number as tables show it: to four digits, or to as many as say on which side of the bounds
    of `rule` it lies."""
    if value is None:
        return "-"
    if math.isfinite(value) and value.is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    for digits in (4, 7, 17):
        text = f"{value:.{digits}g}"
        if rule is None or (rule.excess(float(text)) > 0) == (rule.excess(value) > 0):
            break
    return text


def beyond(rule: Rule, record: Record) -> bool:
    """Whether a record is part of why a rule rejects."""
    if record.comparisons <= 0:
        return False
    return record.value > 0 if rule.statistic == "sum" else rule.excess(record.value) > 0


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The measured outcome furthest beyond its bound, or nearest to it."""
    measured = [(o.rule.excess(o.value), o) for o in outcomes if o.value is not None]
    return max(measured, key=lambda pair: pair[0])[1] if measured else None


def culprits(judgement: Judgement) -> Iterable[tuple[Rule, list[Record]]]:
    """Each rejecting rule with the records because of which it rejects, once each, worst first."""
    for rule in judgement.rules:
        found: dict[int, Record] = {}
        for verdict in judgement.verdicts:
            for outcome in verdict.outcomes:
                if outcome.rule.name == rule.name and outcome.state == "reject":
                    found |= {id(r): r for r in outcome.records if beyond(rule, r)}
        if found:
            yield rule, list(found.values())


def alike(records: Iterable[Record]) -> list[tuple[Record, int]]:
    """Records with how many there are of each: those with one error message count as one."""
    groups: dict[object, list[Record]] = {}
    for record in records:
        groups.setdefault(record.detail.get("error") or id(record), []).append(record)
    return [(group[0], len(group)) for group in groups.values()]
