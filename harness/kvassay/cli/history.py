"""`kvassay history`: what asv measured over commits, as pages that open without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..judging.gate import PASS
from .parts.terminal import Verbose, output


def history(
    results: Annotated[Path, typer.Argument(help="The results folder of asv.")] = Path(
        ".asv/results"
    ),
    pages: Annotated[
        Path, typer.Option("--pages", help="Write the pages into this folder.")
    ] = Path(".asv/pages"),
    verbose: Verbose = False,
) -> int:
    """A history of benchmarks over commits as static pages: no server, no script, no network."""
    from ..report.asv_results import read_history
    from ..report.history import write_history  # draws plots: slow to import

    found = read_history(results)
    index, *others = write_history(pages, found)
    said = f"{len(found.commits)} commits, {len(others)} benchmarks: {index}"
    output().print(said, markup=False, soft_wrap=True)
    return PASS
