"""Verdicts and rules as tables, for terminals from 60 columns on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

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
from .plain_table import PlainTable
from .terminal import NARROW

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


def print_judgement(
    console: Console, judgement: Judgement, verbose: bool = False, interrupted: bool = False
) -> None:
    """The whole verdict: one row a backend and preset, the rules, and what was rejected; of a run
    that was interrupted only rules that were measured."""
    if judgement.verdicts:
        _print_verdicts(console, judgement)
        _print_rules(console, judgement, verbose, interrupted)
        _print_rejects(console, judgement, None if verbose else _WORST_SHOWN)
        if not interrupted:
            _print_unmeasured(console, judgement, None if verbose else _WORST_SHOWN)
    style = _STYLE[decision(judgement)]
    console.print(conclusion(judgement), style=style, markup=False, soft_wrap=True)


def print_variants(console: Console, judgement: Judgement, records: Sequence[Record]) -> None:
    """How each variant of the judged backends ran: natively, emulated, or not and why."""
    judged = {verdict.target.backend for verdict in judgement.verdicts}
    table = PlainTable("backend", "variant", "how it ran", title="Variants")
    for backend, variant, how in how_each_ran(records):
        if backend in judged:
            table.add_row(backend, variant, how)
    if table.rows:
        console.print(table)


def _print_verdicts(console: Console, judgement: Judgement) -> None:
    """The table; what each row rejects stands in it on wide terminals, below it on others."""
    wide = console.width >= NARROW
    columns = ("backend", "preset", "verdict", "highest stage passed")
    broken = "rejecting, not measured (?)"
    table = PlainTable(*columns, *((broken,) if wide else ()), title="Verdicts")
    below: list[str] = []
    for verdict in judgement.verdicts:
        names = [*verdict.named("reject"), *_unmeasured(verdict.named("not measured"))]
        said = ", ".join(names) or "-"
        table.add_row(
            f"{verdict.target.backend}/{verdict.target.variant}",
            verdict.preset,
            _decision_cell(verdict),
            verdict.stage or "none",
            *((said,) if wide else ()),
        )
        if names and not wide:
            below.append(f"{who(verdict)}: {said}")
    console.print(table)
    if below:
        console.print(f"{broken}:")
        for line in below:
            console.print(f"  {line}", markup=False, soft_wrap=True)
        console.print()


def _unmeasured(names: Sequence[str]) -> list[str]:
    """The names while they are few; the table of rules has them all."""
    few = len(names) <= _NAMES_SHOWN
    return [f"{name}?" for name in names] if few else [f"{len(names)} not measured"]


def _decision_cell(verdict: Verdict) -> Text:
    if not verdict.judged:
        return Text(f"{verdict.role}: {verdict.decision.lower()}", style="dim")
    return Text(verdict.decision, style=_STYLE[verdict.decision])


def _print_rules(console: Console, judgement: Judgement, verbose: bool, interrupted: bool) -> None:
    """The rules that say something, or all; narrow terminals do without whom and how many."""
    wide = console.width >= NARROW
    of = ("of", "n") if wide else ()
    columns = ("rule", "bound", "worst", *of, "verdicts")
    table = PlainTable(*columns, title="Rules", right=("worst", "n"))
    silent = unmeasured = 0
    for rule in judgement.rules:
        pairs = _outcomes(judgement, rule)
        if interrupted and all(outcome.value is None for _, outcome in pairs):
            unmeasured += 1
            continue
        if not verbose and all(outcome.state in _SHORT for _, outcome in pairs):
            silent += 1
            continue
        found = worst(outcome for _, outcome in pairs)
        values = {outcome.value for _, outcome in pairs if outcome.value is not None}
        owner = next((v for v, outcome in pairs if outcome is found), None)
        more = (
            who(owner) if owner and len(values) > 1 else "all" if owner else "-",
            _rounded(sum(o.comparisons for _, o in pairs)),
        )
        table.add_row(
            rule.name,
            rule.bound,
            figure(found.value, rule) if found else "-",
            *(more if wide else ()),
            _states(outcome for _, outcome in pairs),
        )
    if table.rows:
        console.print(table)
    if silent:
        one = "1 rule does not apply or is out of scope (-v shows it)"
        many = f"{silent} rules do not apply or are out of scope (-v shows them)"
        said = one if silent == 1 else many
        console.print(said, markup=False, style="dim")
    if unmeasured:
        many = "1 rule was" if unmeasured == 1 else f"{unmeasured} rules were"
        said = f"{many} not measured before the run was stopped"
        console.print(said, markup=False, style="dim")


def _rounded(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * size:
            return f"{count // size}{unit}"
    return str(count)


_SHORT = {"does not apply": "n/a", "outside scope": "out of scope"}


def _states(outcomes: Iterable[Outcome]) -> Text:
    counts = Counter(outcome.state for outcome in outcomes)
    parts = [
        Text(f"{count} {_SHORT.get(state, state)}", style=_STYLE.get(state, "dim"))
        for state, count in sorted(counts.items())
    ]
    return Text(", ").join(parts)


def _outcomes(judgement: Judgement, rule: Rule) -> list[tuple[Verdict, Outcome]]:
    return [
        (verdict, outcome)
        for verdict in judgement.verdicts
        for outcome in verdict.outcomes
        if outcome.rule.name == rule.name
    ]


def _print_rejects(console: Console, judgement: Judgement, limit: int | None) -> None:
    for rule, records in culprits(judgement):
        line = Text.assemble((rule.name, "red"), f" {rule.threshold}: {rule.title}")
        console.print(line, soft_wrap=True)
        print_records(console, records, limit, rule)


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


def print_records(
    console: Console, records: Sequence[Record], limit: int | None, rule: Rule | None = None
) -> None:
    """Records, one line each; the command that repeats them stands once, below the last of it."""
    groups = alike(records)
    shown = groups[:limit]
    for at, (record, count) in enumerate(shown, 1):
        others = f" (and {count - 1} more like it)" if count > 1 else ""
        console.print(f"  {describe(record, rule)}{others}", markup=False, soft_wrap=True)
        last = all(other.reproduce != record.reproduce for other, _ in shown[at:])
        if record.reproduce and last:
            console.print(f"    again: {record.reproduce}", markup=False, soft_wrap=True)
    if limit and len(groups) > limit:
        console.print(f"  and {len(groups) - limit} more (-v shows all)", markup=False)
