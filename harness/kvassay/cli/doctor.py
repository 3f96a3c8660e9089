"""`kvassay doctor` and `kvassay schema`: the machine, and the form of records."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Annotated

import typer
from rich.text import Text

from ..judging.gate import PASS, UNJUDGED
from ..running import doctor
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, output


def examine(
    missing: Annotated[bool, typer.Option("--missing", help="Only what is missing.")] = False,
    verbose: Verbose = False,
) -> int:
    """What this machine can and cannot measure, with the lines that install the rest.

    Exit status: 0 if the default scope can be measured here, 2 if not.
    """
    found = doctor.examine()
    console = output()
    table = PlainTable("what", "here", "found", "for", title="This machine")
    for one in found:
        if not (missing and one.there):
            style = "green" if one.there else "yellow"
            here = Text("yes" if one.there else "no", style=style)
            table.add_row(one.name, here, one.found, one.serves)
    console.print(table)
    fixes = [one for one in found if not one.there and one.install]
    if fixes:
        console.print("What is missing, and how to get it:")
    for one in fixes:
        console.print(f"  {one.name}: {one.install}", markup=False, soft_wrap=True)
    lacking = doctor.scopes(found)
    for scope, names in lacking.items():
        said = f"cannot be measured: no {', no '.join(names)}" if names else "can be measured"
        console.print(
            f"scope {scope}: {said}",
            style="yellow" if names else "green",
            markup=False,
            soft_wrap=True,
        )
    return UNJUDGED if lacking["default"] else PASS


def schema(verbose: Verbose = False) -> int:
    """Print the JSON Schema of records."""
    sys.stdout.write((files("kvassay") / "record.schema.json").read_text(encoding="utf-8"))
    return PASS
