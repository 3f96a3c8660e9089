"""`kvassay list`, `kvassay explain` and `kvassay run`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .. import plugins
from ..errors import KvassayError
from ..judging.evidence import read_run
from ..judging.gate import Question, judge
from ..judging.requirements import in_words
from ..judging.rules import Outcome, Rule, rulebook
from ..judging.wording import figure, who
from ..presets import PRESETS
from ..suite import Request, Target, Task
from .parts.completing import complete_rules
from .parts.options import DepthName
from .parts.plain_table import PlainTable
from .parts.tables import print_records
from .parts.terminal import Verbose, is_verbose, output

_EVIDENCE_SHOWN = 5


def list_all(verbose: Verbose = False) -> int:
    """Backends and variants with their availability, presets, suites and rules."""
    from ..registry import backends, providers, usual  # brings the backends: slow to import

    console = output()
    table = PlainTable("backend", "variant", "status", "reason", title="Backends")
    judged = usual(providers())
    for name, variants in backends().items():
        for variant, state in variants.items():
            style = "green" if state.runs else "yellow"
            reason = state.reason or ("-" if name in judged else f"on request: --backend {name}")
            table.add_row(name, variant, Text(state.status, style=style), reason)
    console.print(table)
    table = PlainTable("preset", "role", "spec", title="Presets")
    for preset in PRESETS.values():
        fields = ", ".join(f"{key} {value}" for key, value in preset.fields.items())
        table.add_row(preset.name, preset.role, fields)
    console.print(table)
    table = PlainTable("suite", "rules", title="Suites")
    for suite in plugins.names(plugins.SUITES):
        names = [rule.name for rule in rulebook().rules if suite in rule.suites]
        table.add_row(suite, ", ".join(names) or "-")
    console.print(table)
    return 0


def explain(
    context: typer.Context,
    rule: Annotated[
        str,
        typer.Argument(
            help="Name of a rule, for instance parity.mismatches.", autocompletion=complete_rules
        ),
    ],
    source: Annotated[
        Path | None, typer.Option("--from", help="Show the evidence in this file of records.")
    ] = None,
    verbose: Verbose = False,
) -> int:
    """A rule: threshold, reason, evidence, and what would change the verdict."""
    found = rulebook().rule(rule)
    console = output()
    _print_rule(console, found)
    if source is not None:
        records = read_run(source)
        judgement = judge(records, Question.of(records))
        limit = None if is_verbose(context) else _EVIDENCE_SHOWN
        for verdict in judgement.verdicts:
            outcomes = [o for o in verdict.outcomes if o.rule.name == found.name]
            for outcome in outcomes:
                _print_outcome(console, who(verdict), outcome, limit)
            if not outcomes:
                console.print(f"{who(verdict)}: not asked for in this run", markup=False)
    return 0


def run_task(
    function: Annotated[str, typer.Argument(help="module:name of a task's function, or a suite.")],
    arguments: Annotated[
        str, typer.Argument(help="Its arguments as a JSON object, or the label of a task.")
    ] = "{}",
    depth: DepthName = None,
    preset: Annotated[str, typer.Option("--preset", help="Of the task of a suite.")] = "",
    backend: Annotated[str, typer.Option("--backend", help="Of the task of a suite.")] = "",
    variant: Annotated[str, typer.Option("--variant", help="Of the task of a suite.")] = "",
    verbose: Verbose = False,
) -> int:
    """Run one task here, alone, and print its records: what reports say under "again"."""
    if ":" in function:
        task = _task_of(function, arguments)
    else:
        from ..running.again import labelled  # numpy, by way of the suites: not for a prompt

        targets = (Target(backend, variant),) if backend else ()
        presets = (preset,) if preset else tuple(PRESETS)
        request = Request(targets, presets, depth=depth or "default")
        task = labelled(function, arguments, request, preset)
    for record in task.run():
        sys.stdout.write(record.to_json() + "\n")
    return 0


def _task_of(function: str, arguments: str) -> Task:
    """The task of a function with arguments as JSON; KvassayError where either is none."""
    try:
        data = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise KvassayError(f"arguments: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise KvassayError("arguments: not a JSON object")
    task = Task("run", function, function, data)
    try:
        task.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise KvassayError(f"no task {function!r}: {error}; give module:name") from error
    return task


def _print_rule(console: Console, rule: Rule) -> None:
    only = f", only for {in_words(rule.requires)}" if rule.requires else ""
    about = f", records about {rule.subject}" if rule.subject else ""
    for name, text in (
        ("rule", f"{rule.name}: {rule.title}"),
        ("threshold", f"{rule.threshold}{about}"),
        ("scope", f"{rule.scope}{only}"),
        ("reason", f"{rule.reason} (set {rule.date.isoformat()})"),
        ("changes it", rule.remedy),
    ):
        console.print(f"{name:<11}{text}", markup=False, soft_wrap=True)


def _print_outcome(console: Console, about: str, outcome: Outcome, limit: int | None) -> None:
    line, rule = f"{about}: {outcome.state}", outcome.rule
    if outcome.value is not None:
        line += f", {rule.statistic} {figure(outcome.value, rule)} {rule.unit}"
        line += f" from {len(outcome.records)} records, {outcome.comparisons:,} comparisons"
    if outcome.note:
        line += f" ({outcome.note})"
    if outcome.state in ("reject", "not measured"):
        line += "; " + _what_changes(outcome)
    console.print(line, markup=False, soft_wrap=True)
    print_records(console, outcome.records, limit, rule)


def _what_changes(outcome: Outcome) -> str:
    """What would change the verdict, in figures where there are some."""
    if outcome.state == "not measured":
        return "a measurement changes it"
    over = [r for r in outcome.records if r.comparisons > 0 and outcome.rule.excess(r.value) > 0]
    verb = "is" if len(over) == 1 else "are"
    which = f" ({len(over)} of the records {verb} beyond it)" if over else ""
    return f"passes when {outcome.rule.threshold}{which}"
