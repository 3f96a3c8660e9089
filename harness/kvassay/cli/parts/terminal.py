"""The terminal: consoles, and the options that every command shares."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final, TextIO

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

#: Width of tables where there is no terminal to ask and COLUMNS says nothing.
_WIDTH: Final = 100
#: Columns below which a table keeps only what it must show.
NARROW: Final = 100


@dataclass
class Session:
    """What one command line keeps besides its arguments."""

    verbose: bool = False


def output() -> Console:
    """Standard output; colours only on a terminal."""
    return _console(sys.stdout)


def errors() -> Console:
    """Standard error."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else _asked_width()
    return Console(file=stream, width=width, highlight=False, emoji=False)


def _asked_width() -> int:
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isascii() and asked.isdigit() and int(asked) > 0 else _WIDTH


class PlainTable(Table):
    """A table as all commands print them. Cells are text as it stands: brackets are no markup."""

    def __init__(self, *columns: str, title: str | None = None) -> None:
        super().__init__(
            title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
            padding=(0, 1, 0, 0),
        )  # fmt: skip
        for name in columns:
            self.add_column(name, overflow="fold")

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; strings become text without markup."""
        super().add_row(*(Text(c) if isinstance(c, str) else c for c in cells), **options)


def _set_verbose(context: typer.Context, value: bool) -> bool:
    if value:
        context.ensure_object(Session).verbose = True
    return value


def is_verbose(context: typer.Context) -> bool:
    """Whether -v was given."""
    return context.ensure_object(Session).verbose


Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", callback=_set_verbose, help="Show tracebacks and evidence."),
]
