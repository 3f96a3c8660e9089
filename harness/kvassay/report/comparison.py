"""A comparison of two runs as one HTML file."""

from __future__ import annotations

import os

from ..judging.compare import Comparison
from ..writing import write_text
from .pages import page

#: Changes of untracked figures that the page lists; the terminal's -v lists all.
_FIGURES_SHOWN = 200


def render_comparison(found: Comparison, names: tuple[str, str]) -> str:
    """The comparison as HTML; `names` are those of the two files."""
    headline = ("NO REGRESSION", "REGRESSION", "NOT COMPARABLE")[found.exit_status]
    figures = found.figures[:_FIGURES_SHOWN]
    return page("compare.html.j2", found=found, names=names, headline=headline, figures=figures)


def write_comparison(
    path: str | os.PathLike[str], found: Comparison, names: tuple[str, str]
) -> None:
    """Write the page; raises WriteError where it cannot be written."""
    write_text("report", path, render_comparison(found, names))
