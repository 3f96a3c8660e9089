"""`kvassay new-backend`: the folder of a backend that works from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import RegistryError
from ..skeletons.write import KINDS, write_skeleton
from .parts.completing import complete_kinds
from .parts.terminal import Verbose, output


def new_backend(
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, hyphens.")],
    kind: Annotated[
        str,
        typer.Option("--kind", help=f"One of {', '.join(KINDS)}.", autocompletion=complete_kinds),
    ],
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder to write (default: NAME).")
    ] = None,
    verbose: Verbose = False,
) -> int:
    """Write the folder of a new backend: sources, build, test and CI file, ready to be gated."""
    from ..registry import providers  # brings the backends: slow to import

    if name in providers():
        raise RegistryError(f"a backend named {name!r} exists already; choose another name")
    folder = into or Path(name)
    for path in write_skeleton(name, kind, folder):
        output().print(str(path), markup=False, soft_wrap=True)
    output().print(f"next: see {folder / 'README.md'}", markup=False, soft_wrap=True)
    return 0
