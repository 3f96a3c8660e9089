"""`kvassay compare A B`: what changed between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..errors import KvassayError
from ..judging.evidence import read_run
from ..judging.gate import UNJUDGED
from ..judging.wording import about, figure
from ..writing import check_outputs
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, is_verbose, output

if TYPE_CHECKING:
    from ..judging.compare import Change, Comparison

_FIGURES_SHOWN = 10
_STYLE = {"regressed": "red", "improved": "green", "missing": "yellow"}


def compare(
    context: typer.Context,
    before: Annotated[Path, typer.Argument(help="Records of the earlier run.")],
    after: Annotated[Path, typer.Argument(help="Records of the later run.")],
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the comparison as HTML here.")
    ] = None,
    verbose: Verbose = False,
) -> int:
    """What changed between two runs: verdicts, rules, tracked figures, everything else.

    Exit status: 0 nothing got worse, 1 something did, 2 nothing could be compared.
    """
    from ..judging.compare import Comparison  # statistics: slow to import

    check_outputs({"--report": report}, {f"records {path}": path for path in (before, after)})
    first, second = (read_run(path) for path in (before, after))
    found = Comparison.of(first, second)
    if report:
        from ..report.comparison import write_comparison

        write_comparison(report, found, (str(before), str(after)))
    print_comparison(output(), found, is_verbose(context))
    if report:
        output().print(f"report: {report}", markup=False, soft_wrap=True)
    if found.exit_status == UNJUDGED:
        raise KvassayError(f"{before} and {after} share no target with a preset and no figure")
    return found.exit_status


def print_comparison(console: Console, found: Comparison, verbose: bool) -> None:
    """The comparison as tables, and what got worse in words."""
    _print_rows(
        console,
        "Verdicts and rules",
        ("backend and preset", "rule", "then", "now"),
        [
            (f"{c.target.backend}/{c.target.variant} {c.preset}", c.name, c.before, c.after)
            for c in found.verdicts
            if c.before != c.after
        ],
    )
    shown = [c for c in found.changes if verbose or c.state not in ("unchanged", "new")]
    _print_rows(
        console,
        "Tracked figures" if verbose else "Tracked figures that changed",
        ("figure", "then", "now", "growth", "state"),
        [_change_row(change) for change in shown],
    )
    limit = None if verbose else _FIGURES_SHOWN
    _print_rows(
        console,
        f"Other figures, {len(found.figures)} of which differ",
        ("figure", "then", "now", "growth"),
        [
            (
                about(f.record),
                figure(f.before),
                figure(f.record.value),
                grown(f.before, f.record.value),
            )
            for f, now in ((f, f.record.value) for f in found.figures[:limit])
        ],
    )
    _print_rows(console, "Machine and builds", ("what", "then", "now"), found.surroundings)
    for line in found.regressions:
        console.print(f"worse: {line}", markup=False, soft_wrap=True, style="red")
    console.print(summary(found), markup=False, soft_wrap=True)


def summary(found: Comparison) -> str:
    """One line: how many figures were compared and what became of them."""
    counts = {
        state: sum(change.state == state for change in found.changes)
        for state in ("regressed", "improved", "unchanged", "missing", "new")
    }
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"tracked figures: {parts or 'none'}; {len(found.regressions)} regressions in all"


def _change_row(change: Change) -> tuple[str | Text, ...]:
    then, now = change.before, change.after
    growth = grown(then, now) if then is not None and now is not None else "-"
    state = Text(change.state, style=_STYLE.get(change.state, ""))
    return about(change.record), figure(then), figure(now), growth, state


def grown(then: float, now: float) -> str:
    """How much a figure grew: in percent while that says something, as a factor beyond."""
    if not then or now / then < 0:
        return "-" if now == then else f"{now - then:+.4g}"
    factor = now / then
    return f"{factor - 1:+.1%}" if 0.1 <= factor < 10 else f"x {factor:.3g}"


def _print_rows(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]
) -> None:
    if not rows:
        return
    table = PlainTable(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)
