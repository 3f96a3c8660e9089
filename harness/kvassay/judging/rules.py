"""Rules: pure functions from records to pass, reject or not measured (thresholds in rules.toml)."""

from __future__ import annotations

import datetime
import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from ..errors import RecordError, UnknownBackendError
from ..records import Record
from ..suggest import did_you_mean
from .requirements import REQUIREMENTS

RULES_VERSION: Final = 1
State = Literal["pass", "reject", "not measured", "outside scope", "does not apply"]
Scope = Literal["default", "full", "browser"]
SCOPES: Final = get_args(Scope)
STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "max": max,
    "min": min,
    "sum": math.fsum,
    "median": statistics.median,
}


@dataclass(frozen=True)
class Rule:
    """One threshold. `maximum` and `minimum` are None where the rule has no such bound.

    `suites` are those that measure it: the one its check is named after unless it says otherwise.
    """

    name: str
    title: str
    check: str
    statistic: str
    maximum: float | None
    minimum: float | None
    unit: str
    scope: str
    requires: tuple[str, ...]
    subject: str
    suites: tuple[str, ...]
    reason: str
    date: datetime.date
    remedy: str
    #: The least and the greatest value that a measurement can have at all.
    possible: tuple[float, float]
    #: Where what is bounded is a share of a budget: the budgets by subject, in the suite's unit.
    budgets: Mapping[str, float] = field(default_factory=dict)

    @property
    def bound(self) -> str:
        """The bounds alone, for instance `sum <= 0`."""
        if self.maximum is None:
            return f"{self.statistic} >= {self.minimum:g}"
        if self.minimum is None:
            return f"{self.statistic} <= {self.maximum:g}"
        return f"{self.statistic} {self.minimum:g}..{self.maximum:g}"

    @property
    def threshold(self) -> str:
        """The bounds with their unit, for instance `sum <= 0 values`."""
        return f"{self.bound} {self.unit}"

    def excess(self, value: float) -> float:
        """How far a value is beyond the bounds; at most 0 inside, infinite for NaN."""
        if math.isnan(value):
            return math.inf
        above = -math.inf if self.maximum is None else value - self.maximum
        below = -math.inf if self.minimum is None else self.minimum - value
        return max(above, below)

    def explains(self, value: float) -> bool:
        """Whether a record can have that value: what none can, an infinity that would pass
        included, is evidence of nothing. NaN, which rejects, is what a measurement may end in."""
        least, most = self.possible
        if math.isinf(value):
            return self.excess(value) > 0
        return math.isnan(value) or least <= value <= most

    def in_scope(self, scope: str) -> bool:
        """Whether a gate of that scope needs this rule: full and browser add to default."""
        return self.scope in ("default", scope)


@dataclass(frozen=True)
class Stage:
    """A step of the ladder. A required one must have records before a later one counts."""

    name: str
    required: bool


@dataclass(frozen=True)
class Rulebook:
    """All rules and stages, in order."""

    rules: tuple[Rule, ...]
    stages: tuple[Stage, ...]

    def rule(self, name: str) -> Rule:
        """The rule of that name, or UnknownBackendError with a near one."""
        for rule in self.rules:
            if rule.name == name:
                return rule
        near = did_you_mean(name, [rule.name for rule in self.rules])
        raise UnknownBackendError(f"no rule {name!r}{near}")


@dataclass(frozen=True)
class Outcome:
    """What a rule says about records. `records` are the evidence, worst first.

    `value` is the statistic over what was measured (None if nothing was); for the statistic
    `each` it is the value furthest beyond the bounds. `comparisons` is what it rests on.
    """

    rule: Rule
    state: State
    value: float | None = None
    comparisons: int = 0
    records: tuple[Record, ...] = ()
    note: str = ""


def evaluate(rule: Rule, records: Iterable[Record]) -> Outcome:
    """The outcome of a rule over the records of one backend and preset.

    A record without comparisons measured nothing: it never passes, and no other record makes up
    for it. A value that is not a number rejects.
    """
    found = [record for record in records if matches(rule, record)]
    measured = sorted(
        (record for record in found if record.comparisons > 0),
        key=lambda record: -rule.excess(record.value),
    )
    empty = tuple(record for record in found if record.comparisons <= 0)
    if not measured:
        note = _lacking(empty, len(found)) if found else "no record"
        return Outcome(rule, "not measured", records=empty, note=note)
    value = _statistic(rule, measured)
    state: State = "reject" if rule.excess(value) > 0 else "not measured" if empty else "pass"
    return Outcome(
        rule,
        state,
        value=value,
        comparisons=sum(record.comparisons for record in measured),
        records=(*empty, *measured) if state == "not measured" else (*measured, *empty),
        note=_lacking(empty, len(found)) if empty else "",
    )


def _lacking(empty: Sequence[Record], count: int) -> str:
    """How many of the records rest on nothing, and why the first of them does."""
    said = f"{len(empty)} of {count} records without a comparison"
    reasons = (record.detail.get(name) for record in empty for name in ("error", "reason", "note"))
    why = next((reason for reason in reasons if isinstance(reason, str) and reason), "")
    return f"{said}: {why}" if why else said


def matches(rule: Rule, record: Record) -> bool:
    """Whether a record is evidence for a rule, whoever it is about."""
    return record.check == rule.check and rule.subject in ("", record.subject)


def _statistic(rule: Rule, worst_first: Sequence[Record]) -> float:
    values = [record.value for record in worst_first]
    if rule.statistic == "each" or any(math.isnan(value) for value in values):
        return values[0]
    return STATISTICS[rule.statistic](values)


@cache
def rulebook() -> Rulebook:
    """The rules that ship with kvassay."""
    return parse_rules((files("kvassay.judging") / "rules.toml").read_text(encoding="utf-8"))


def parse_rules(text: str) -> Rulebook:
    """Read rules from TOML; raises RecordError naming the rule and the field that is wrong."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecordError(f"rules.toml: not TOML ({error})") from None
    if data.get("version") != RULES_VERSION:
        raise RecordError(
            f"rules.toml: version {data.get('version')!r}, this kvassay reads {RULES_VERSION}"
        )
    stages = tuple(Stage(str(item["name"]), bool(item["required"])) for item in data["stages"])
    rules = tuple(_parse_rule(entry) for entry in data.get("rule", ()))
    names = [rule.name for rule in rules]
    if not rules or len(set(names)) < len(names):
        raise RecordError("rules.toml: no rule, or two of one name")
    return Rulebook(rules, stages)


_TEXTS: Final = ("name", "title", "check", "statistic", "unit", "scope", "reason", "remedy")


def _parse_rule(entry: Mapping[str, Any]) -> Rule:
    where = f"rules.toml: rule {entry.get('name')!r}"
    known = {*_TEXTS, "subject", "suites", "max", "min", "requires", "date", "budgets", "possible"}
    if unknown := sorted(set(entry) - known):
        raise RecordError(f"{where}: unknown field {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    for name in _TEXTS:
        if not isinstance(entry.get(name), str) or not entry[name]:
            raise RecordError(f"{where}: {name} must be a text")
    _one_of(where, "statistic", entry["statistic"], ("each", *STATISTICS))
    _one_of(where, "scope", entry["scope"], SCOPES)
    for requirement in entry.get("requires", ()):
        _one_of(where, "requires", requirement, tuple(REQUIREMENTS))
    if not isinstance(entry.get("date"), datetime.date):
        raise RecordError(f"{where}: date must be a date")
    if "max" not in entry and "min" not in entry:
        raise RecordError(f"{where}: needs max, min or both")
    return Rule(
        **{name: entry[name] for name in _TEXTS},
        maximum=float(entry["max"]) if "max" in entry else None,
        minimum=float(entry["min"]) if "min" in entry else None,
        requires=tuple(entry.get("requires", ())),
        subject=entry.get("subject", ""),
        suites=tuple(entry.get("suites", (entry["check"].partition(".")[0],))),
        date=entry["date"],
        possible=_possible(where, entry),
        budgets=MappingProxyType(_budgets(where, entry.get("budgets", {}))),
    )


def _possible(where: str, entry: Mapping[str, Any]) -> tuple[float, float]:
    least = 0 if entry["statistic"] == "sum" else -math.inf
    found = entry.get("possible", [least, math.inf])
    if (
        not isinstance(found, list)
        or [type(one) in (int, float) for one in found] != [True, True]
        or not found[0] < found[1]
    ):
        raise RecordError(f"{where}: possible must be two numbers, the lesser first")
    return float(found[0]), float(found[1])


def _budgets(where: str, entry: Mapping[str, Any]) -> dict[str, float]:
    for subject, budget in entry.items():
        if not isinstance(budget, (int, float)) or budget <= 0:
            raise RecordError(f"{where}: budget {subject!r} must be a number above 0")
    return {subject: float(budget) for subject, budget in entry.items()}


def _one_of(where: str, field: str, value: Any, known: Iterable[str]) -> None:
    options = tuple(known)
    if value not in options:
        raise RecordError(f"{where}: {field} {value!r}{did_you_mean(str(value), options)}")
