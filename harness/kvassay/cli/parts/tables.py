"""Verdicts and rules as tables for a terminal of 100 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ...judging.gate import Judgement, Verdict
from ...judging.rules import Outcome, Rule
from ...judging.wording import (
    alike,
    conclusion,
    culprits,
    decision,
    describe,
    figure,
    how_each_ran,
    who,
    worst,
)
from ...records import Record

_STYLE = {
    "PASS": "bold green",
    "REJECT": "bold red",
    "NOT MEASURED": "bold yellow",
    "pass": "green",
    "reject": "red",
    "not measured": "yellow",
}
_WORST_SHOWN = 3
_NAMES_SHOWN = 3


def print_judgement(console: Console, judgement: Judgement, verbose: bool = False) -> None:
    """The whole verdict: one row a backend and preset, the rules, and what was rejected."""
    if judgement.verdicts:
        console.print(_verdict_table(judgement))
        console.print(_rule_table(judgement))
        _print_rejects(console, judgement, None if verbose else _WORST_SHOWN)
        _print_unmeasured(console, judgement, None if verbose else _WORST_SHOWN)
    console.print(conclusion(judgement), style=_STYLE[decision(judgement)])


def print_variants(console: Console, judgement: Judgement, records: Sequence[Record]) -> None:
    """How each variant of the judged backends ran: natively, emulated, or not and why."""
    judged = {verdict.target.backend for verdict in judgement.verdicts}
    table = _table("Variants")
    table.add_column("backend", no_wrap=True)
    table.add_column("variant", no_wrap=True)
    table.add_column("how it ran", overflow="fold")
    for backend, variant, how in how_each_ran(records):
        if backend in judged:
            table.add_row(backend, variant, how)
    if table.row_count:
        console.print(table)


def _verdict_table(judgement: Judgement) -> Table:
    table = _table("Verdicts")
    table.add_column("backend", no_wrap=True)
    table.add_column("preset", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("highest stage passed")
    table.add_column("rejecting, not measured (?)", ratio=1)
    for verdict in judgement.verdicts:
        names = [*verdict.named("reject"), *_unmeasured(verdict.named("not measured"))]
        table.add_row(
            f"{verdict.target.backend}/{verdict.target.variant}",
            verdict.preset,
            _decision_cell(verdict),
            verdict.stage or "none",
            ", ".join(names) or "-",
        )
    return table


def _unmeasured(names: Sequence[str]) -> list[str]:
    """The names while they are few; the table of rules has them all."""
    few = len(names) <= _NAMES_SHOWN
    return [f"{name}?" for name in names] if few else [f"{len(names)} not measured"]


def _decision_cell(verdict: Verdict) -> str:
    if not verdict.judged:
        return f"[dim]{verdict.role}: {verdict.decision.lower()}[/dim]"
    return f"[{_STYLE[verdict.decision]}]{verdict.decision}[/]"


def _rule_table(judgement: Judgement) -> Table:
    table = _table("Rules")
    table.add_column("rule", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    table.add_column("worst", justify="right", no_wrap=True)
    table.add_column("of", overflow="fold", min_width=15)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("verdicts")
    for rule in judgement.rules:
        pairs = _outcomes(judgement, rule)
        found = worst(outcome for _, outcome in pairs)
        values = {outcome.value for _, outcome in pairs if outcome.value is not None}
        owner = next((v for v, outcome in pairs if outcome is found), None)
        table.add_row(
            rule.name,
            rule.bound,
            figure(found.value if found else None),
            who(owner) if owner and len(values) > 1 else "all" if owner else "-",
            _rounded(sum(o.comparisons for _, o in pairs)),
            _states(outcome for _, outcome in pairs),
        )
    return table


def _rounded(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * size:
            return f"{count // size}{unit}"
    return str(count)


_SHORT = {"does not apply": "n/a", "outside scope": "out of scope"}


def _states(outcomes: Iterable[Outcome]) -> str:
    counts = Counter(outcome.state for outcome in outcomes)
    return ", ".join(
        f"[{_STYLE.get(state, 'dim')}]{count} {_SHORT.get(state, state)}[/]"
        for state, count in sorted(counts.items())
    )


def _outcomes(judgement: Judgement, rule: Rule) -> list[tuple[Verdict, Outcome]]:
    return [
        (verdict, outcome)
        for verdict in judgement.verdicts
        for outcome in verdict.outcomes
        if outcome.rule.name == rule.name
    ]


def _print_rejects(console: Console, judgement: Judgement, limit: int | None) -> None:
    for rule, records in culprits(judgement):
        console.print(f"[red]{rule.name}[/] {rule.threshold}: {rule.title}")
        print_records(console, records, limit)


def _print_unmeasured(console: Console, judgement: Judgement, limit: int | None) -> None:
    """Why rules were not measured, where their records say it."""
    lines = dict.fromkeys(
        f"{outcome.rule.name} not measured: {outcome.note}"
        for verdict in judgement.verdicts
        for outcome in verdict.outcomes
        if verdict.judged and outcome.state == "not measured" and outcome.records
    )
    for line in list(lines)[:limit]:
        console.print(line, markup=False, soft_wrap=True)
    if limit and len(lines) > limit:
        console.print(f"and {len(lines) - limit} more (-v shows all)", markup=False)


def print_records(console: Console, records: Sequence[Record], limit: int | None) -> None:
    """Records, one line each, with the command that repeats them below."""
    groups = alike(records)
    for record, count in groups[:limit]:
        others = f" (and {count - 1} more like it)" if count > 1 else ""
        console.print(f"  {describe(record)}{others}", markup=False, soft_wrap=True)
        if record.reproduce:
            console.print(f"    again: {record.reproduce}", markup=False, soft_wrap=True)
    if limit and len(groups) > limit:
        console.print(f"  and {len(groups) - limit} more (-v shows all)", markup=False)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
