"""What all plots share: inline SVG whose colours are CSS variables, so that they follow light and
dark."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..presets import PRESETS

#: Colours that matplotlib writes and the page's style sheet gives meaning to.
_INK, _GRID, LIMIT = "#000001", "#000002", "#000003"
SERIES: Final = tuple(f"#0000c{number}" for number in range(9))
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _GRID: "var(--line)",
    LIMIT: "var(--bad)",
    **{colour: f"var(--series{number})" for number, colour in enumerate(SERIES)},
}
STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kvassay",
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
}
WIDTH: Final = 5.8


@dataclass(frozen=True)
class Plot:
    """A picture, what it shows, and the same numbers as rows of text."""

    title: str
    caption: str
    svg: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def new_figure(height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure and its axes, without a ground of their own."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    return figure, axes


def draw_legend(axes: Axes) -> None:
    """The legend above the axes."""
    _, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) > 18 else 3 if len(labels) <= 6 else 4
    axes.figure.legend(loc="outside upper left", ncols=columns, fontsize=9)


def colour(name: str) -> str:
    """A preset keeps its colour whatever else is drawn."""
    return SERIES[place(name) % len(SERIES)]


def place(name: str) -> int:
    """Where the preset that a label begins with stands among the presets."""
    preset = name.partition(",")[0]
    return [*PRESETS, preset].index(preset)


def to_svg(figure: Figure, name: str) -> Markup:
    """The figure for use inside a page: no fixed size, own ids, colours by variable."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    prefix = re.sub(r"\W", "-", name)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = text.replace("url(#", f"url(#{prefix}-")
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return Markup(text)
