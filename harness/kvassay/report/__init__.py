"""The report: one HTML file that needs nothing else, made from records and their judgement."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..judging.gate import Judgement
from ..records import Record
from ..writing import write_text
from .pages import page
from .plots import plots
from .view import View

__all__ = ["render", "write_report"]


def render(judgement: Judgement, records: Sequence[Record]) -> str:
    """The report as HTML: inline styles and SVG, no script, no network."""
    return page("report.html.j2", view=View.of(judgement, records), plots=plots(records))


def write_report(
    path: str | os.PathLike[str], judgement: Judgement, records: Sequence[Record]
) -> None:
    """Write the report; raises WriteError where it cannot be written."""
    write_text("report", path, render(judgement, records))
