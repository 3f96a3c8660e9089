"""A summary in Markdown, for the page of a CI run or a comment on a change."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..judging.gate import Judgement
from ..judging.wording import alike
from ..records import Record
from ..writing import write_text
from .pages import page
from .view import View

#: Characters that a cell or a line of Markdown gives meaning to.
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~"} | {"\n": " ", "\r": " "})


def escape(text: object) -> str:
    """Text as Markdown shows it literally, on one line."""
    return str(text).translate(_SPECIAL)


def render_markdown(judgement: Judgement, records: Sequence[Record]) -> str:
    """Verdict, what rejects and why, what was not measured, and the machine, as Markdown."""
    regressions = [r for r in records if r.check == "run.regressions" and "state" in r.detail]
    return page(
        "summary.md.j2",
        view=View.of(judgement, records),
        held=len(regressions),
        worse=alike(r for r in regressions if r.value > 0),
        md=escape,
        unmeasured=lambda verdict: [f"{name}?" for name in verdict.named("not measured")],
    )


def write_markdown(
    path: str | os.PathLike[str], judgement: Judgement, records: Sequence[Record]
) -> None:
    """Write the summary; raises WriteError where it cannot be written."""
    write_text("summary", path, render_markdown(judgement, records))
