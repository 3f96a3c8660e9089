"""The terminal: consoles, and the options that every command shares."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Final, TextIO

import typer
from rich.console import Console

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
