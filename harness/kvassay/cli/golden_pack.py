"""`kvassay golden-pack`: fixed vectors for runtimes in any language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..assets.files import differences, pack, write_files
from .parts.terminal import Verbose, output


def golden_pack(
    folder: Annotated[Path, typer.Argument(help="A new folder, or with --check an old one.")],
    check: Annotated[
        bool, typer.Option("--check", help="Compare the folder with the pack; write nothing.")
    ] = False,
    verbose: Verbose = False,
) -> int:
    """Write inputs, every intermediate, pages, scores and outputs as plain files with a manifest.

    Exit status of --check: 0 the same, 1 something differs.
    """
    files = pack("golden")
    if not check:
        write_files(files, folder)
        size = sum(map(len, files.values()))
        output().print(
            f"golden pack: {folder} ({len(files)} files, {size} bytes); try: node "
            f"{folder / 'check.mjs'}", markup=False, soft_wrap=True,
        )  # fmt: skip
        return 0
    wrong = differences(files, folder)
    for line in wrong:
        output().print(line, markup=False, soft_wrap=True)
    output().print(f"golden pack: {len(files)} files, {len(wrong)} differences")
    return 1 if wrong else 0
