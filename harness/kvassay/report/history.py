"""A history of benchmarks as static pages: an index and a page a benchmark, no script, no network.

asv's own pages fetch their numbers when they are looked at, which browsers refuse for files, and
their program from other servers; these have everything in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np

from ..judging.wording import figure
from ..writing import write_text
from .asv_results import AVAILABILITY, Benchmark, Commit, History, Point, Series, reasons
from .drawing import STYLE, Plot, colour, draw_legend, new_figure, place, to_svg
from .pages import page

#: The parameter whose values are the lines of a plot.
_LINES: Final = "preset"


@dataclass(frozen=True)
class Row:
    """A series in the index: its first and last figure."""

    benchmark: str
    link: str
    unit: str
    what: str
    first: str
    last: str
    change: str


def write_history(folder: str | os.PathLike[str], history: History) -> list[Path]:
    """Write `index.html` and the others; returns their paths. Raises OSError, WriteError."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    shown = [found for found in history.benchmarks if not found.name.endswith(AVAILABILITY)]
    text = page(
        "history.html.j2",
        history=history,
        rows=[row for found in shown for row in _rows(found, history.commits)],
        reasons=reasons(history),
        failed=_failed(shown),
    )
    written = [_write(root / "index.html", text)]
    with matplotlib.rc_context(STYLE):
        for found in shown:
            text = page("benchmark.html.j2", benchmark=found, plots=_plots(found, history.commits))
            written.append(_write(root / _link(found.name), text))
    return written


def _write(path: Path, text: str) -> Path:
    write_text("page", path, text)
    return path


def _link(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name) + ".html"


def _rows(found: Benchmark, commits: Sequence[Commit]) -> list[Row]:
    """What moved, series by series; those without any figure have no row."""
    rows = []
    for series in found.series:
        points = _measured(series, commits)
        if not points:
            continue
        first, last = points[0][1].value, points[-1][1].value
        change = f"{100 * (last / first - 1):+.1f} %" if first and len(points) > 1 else "-"
        what = " ".join((*series.parameters.values(), f"on {series.machine}"))
        rows.append(
            Row(
                found.name, _link(found.name), found.unit, what, figure(first), figure(last), change
            )
        )
    return rows


def _measured(series: Series, commits: Sequence[Commit]) -> list[tuple[int, Point]]:
    """Places among the commits, and the figures there."""
    return [
        (number, series.points[commit.name])
        for number, commit in enumerate(commits)
        if commit.name in series.points and series.points[commit.name].state == "measured"
    ]


def _failed(benchmarks: Sequence[Benchmark]) -> list[str]:
    """Series that failed at some commit: neither a figure nor a reason for none."""
    return [
        f"{found.name} {' '.join(series.parameters.values())} on {series.machine} at {name[:8]}"
        for found in benchmarks
        for series in found.series
        for name, point in series.points.items()
        if point.state == "failed"
    ]


def _plots(found: Benchmark, commits: Sequence[Commit]) -> list[Plot]:
    """A plot for each machine and set of the other parameters, a line a preset."""
    groups: dict[str, dict[str, Series]] = {}
    for series in found.series:
        others = [value for name, value in series.parameters.items() if name != _LINES]
        title = " ".join((*others, f"on {series.machine}"))
        groups.setdefault(title, {})[series.parameters.get(_LINES, found.name)] = series
    drawn = [_plot(found, title, lines, commits) for title, lines in groups.items()]
    return [plot for plot in drawn if plot is not None]


def _plot(
    found: Benchmark, title: str, lines: Mapping[str, Series], commits: Sequence[Commit]
) -> Plot | None:
    names = [name for name in sorted(lines, key=place) if _measured(lines[name], commits)]
    if not names:
        return None
    drawing, axes = new_figure()
    for name in names:
        points = _measured(lines[name], commits)
        values = [point.value for _, point in points]
        spread = [
            [max(0.0, point.value - point.low) for _, point in points],
            [max(0.0, point.high - point.value) for _, point in points],
        ]
        axes.errorbar(
            [number for number, _ in points], values, spread if np.any(spread) else None,
            color=colour(name), label=name, linewidth=1.6, marker="o", markersize=4, capsize=3,
        )  # fmt: skip
    axes.set_xticks(range(len(commits)), [commit.short for commit in commits], rotation=30)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(found.unit)
    axes.grid(True, axis="y")
    draw_legend(axes)
    rows = tuple(
        (commit.short, *(_cell(lines[name].points.get(commit.name)) for name in names))
        for commit in commits
    )
    caption = f"{found.about} By commit, the oldest at the left.".strip()
    svg = to_svg(drawing, f"{found.name}-{title}")
    return Plot(title, caption, svg, ("commit", *names), rows)


def _cell(point: Point | None) -> str:
    if point is None:
        return "-"
    return figure(point.value) if point.state == "measured" else point.state
