"""Verdicts and rules as tables for a terminal of 100 columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ..gate import Judgement, Verdict
from ..records import Record
from ..rules import Outcome, Rule

_STYLE = {
    "PASS": "bold green",
    "REJECT": "bold red",
    "NOT MEASURED": "bold yellow",
    "pass": "green",
    "reject": "red",
    "not measured": "yellow",
}
_WORST_SHOWN = 3


def print_judgement(console: Console, judgement: Judgement, verbose: bool = False) -> None:
    """The whole verdict: one row a backend and preset, the rules, and what was rejected."""
    if judgement.verdicts:
        console.print(_verdict_table(judgement))
        console.print(_rule_table(judgement))
        _print_rejects(console, judgement, None if verbose else _WORST_SHOWN)
    console.print(conclusion(judgement), style=_STYLE[decision(judgement)])


def decision(judgement: Judgement) -> str:
    """PASS, REJECT or NOT MEASURED: the exit status in a word."""
    return ("PASS", "REJECT", "NOT MEASURED")[judgement.exit_status]


def conclusion(judgement: Judgement) -> str:
    """The last line: what decided the exit status."""
    word = decision(judgement)
    narrowed = f", only the rules of {', '.join(judgement.suites)}" if judgement.suites else ""
    scope = f"scope {judgement.scope}{narrowed}"
    if judgement.problem:
        return f"{word} ({scope}): {judgement.problem}"
    counts = Counter(v.decision for v in judgement.verdicts if v.judged)
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"{word} ({scope}): {parts}"


def figure(value: float | None) -> str:
    """A number as tables show it."""
    if value is None:
        return "-"
    whole = math.isfinite(value) and value.is_integer() and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The measured outcome furthest beyond, or nearest to, its bound."""
    measured = [outcome for outcome in outcomes if outcome.value is not None]
    return max(measured, key=lambda o: o.rule.excess(o.value or 0.0), default=None)


def _verdict_table(judgement: Judgement) -> Table:
    table = _table("Verdicts")
    table.add_column("backend", no_wrap=True)
    table.add_column("preset", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("highest stage passed")
    table.add_column("rejecting, not measured (?)", ratio=1)
    for verdict in judgement.verdicts:
        names = [*verdict.named("reject"), *(f"{n}?" for n in verdict.named("not measured"))]
        table.add_row(
            f"{verdict.target.backend}/{verdict.target.variant}",
            verdict.preset,
            _decision_cell(verdict),
            verdict.stage or "none",
            ", ".join(names) or "-",
        )
    return table


def _decision_cell(verdict: Verdict) -> str:
    if not verdict.judged:
        return f"[dim]{verdict.role}: {verdict.decision.lower()}[/dim]"
    return f"[{_STYLE[verdict.decision]}]{verdict.decision}[/]"


def _rule_table(judgement: Judgement) -> Table:
    table = _table("Rules")
    table.add_column("rule", no_wrap=True)
    table.add_column("threshold")
    table.add_column("worst", justify="right", no_wrap=True)
    table.add_column("of")
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("verdicts", ratio=1)
    for rule in judgement.rules:
        pairs = _outcomes(judgement, rule)
        found = worst(outcome for _, outcome in pairs)
        owner = next((v for v, outcome in pairs if outcome is found), None)
        table.add_row(
            rule.name,
            rule.threshold,
            figure(found.value if found else None),
            f"{owner.target.backend}/{owner.target.variant} {owner.preset}" if owner else "-",
            f"{sum(o.comparisons for _, o in pairs):,}",
            _states(outcome for _, outcome in pairs),
        )
    return table


def _states(outcomes: Iterable[Outcome]) -> str:
    counts = Counter(outcome.state for outcome in outcomes)
    return ", ".join(
        f"[{_STYLE.get(state, 'dim')}]{count} {state}[/]" for state, count in counts.items()
    )


def _outcomes(judgement: Judgement, rule: Rule) -> list[tuple[Verdict, Outcome]]:
    return [
        (verdict, outcome)
        for verdict in judgement.verdicts
        for outcome in verdict.outcomes
        if outcome.rule.name == rule.name
    ]


def _print_rejects(console: Console, judgement: Judgement, limit: int | None) -> None:
    """For each rejecting rule the worst records, once each, and how to repeat them."""
    for rule in judgement.rules:
        seen: dict[int, Record] = {}
        for _, outcome in _outcomes(judgement, rule):
            if outcome.state == "reject":
                seen |= {id(r): r for r in outcome.records if beyond(rule, r)}
        if seen:
            console.print(f"[red]{rule.name}[/] {rule.threshold}: {rule.title}")
            print_records(console, list(seen.values()), limit)


def beyond(rule: Rule, record: Record) -> bool:
    """Whether a record is part of why a rule rejects."""
    if record.comparisons <= 0:
        return False
    return record.value > 0 if rule.statistic == "sum" else rule.excess(record.value) > 0


def print_records(console: Console, records: Sequence[Record], limit: int | None) -> None:
    """Records, one line each, with the command that repeats them below."""
    shown = records[:limit]
    for record in shown:
        console.print(f"  {describe(record)}", markup=False, soft_wrap=True)
        if record.reproduce:
            console.print(f"    again: {record.reproduce}", markup=False, soft_wrap=True)
    if len(records) > len(shown):
        console.print(f"  and {len(records) - len(shown)} more (-v shows all)", markup=False)


def describe(record: Record) -> str:
    """A record in one line."""
    who = f"{record.backend}/{record.variant}" if record.backend else "all backends"
    about = " ".join(part for part in (who, record.preset, record.subject) if part)
    error = record.detail.get("error")
    what = str(error) if error else f"{figure(record.value)} {record.unit} of {record.comparisons}"
    return f"{about}: {what}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
