"""`kvassay serve`: the dogfood page, on this machine or as a folder for any web server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from ..assets.files import Files, site, write_files
from ..assets.siteserver import SiteServer
from ..errors import InputError, ModelError
from ..judging.rules import rulebook
from .parts.terminal import Verbose, output

#: What the page needs of a rule to apply and show it.
_RULE_FIELDS: Final = (
    "name", "title", "check", "statistic", "maximum", "minimum", "unit", "reason",
)  # fmt: skip


def serve(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model", help="GGUF file to offer on the page. Default: SmolLM2-135M if installed."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8377,
    folder: Annotated[
        Path | None,
        typer.Option("--export", help="Write the page as a folder instead, for any web server."),
    ] = None,
    verbose: Verbose = False,
) -> int:
    """The dogfood page: suites and a model with its cache in WebAssembly, in your browser."""
    models = _checked(model) if model else ([] if folder else _installed())
    files = page(models)
    if folder is not None:
        count = write_files(files, folder)
        output().print(f"{folder}: {count} files", markup=False, soft_wrap=True)
        return 0
    with SiteServer(files, host, port) as server:
        output().print(f"{server.url} (Ctrl-C ends it)", markup=False, soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            output().print("ended")
    return 0


def page(models: list[Path]) -> Files:
    """The files of the page: those of the installed packages, the models and the rules."""
    files = site()
    listed = []
    for path in models:
        name = f"models/{re.sub(r'[^A-Za-z0-9._-]', '_', path.name)}"
        if name in files:
            raise InputError(f"--model: two files are called {path.name}; rename one")
        files[name] = path
        listed.append({"name": path.stem, "file": name, "bytes": path.stat().st_size})
    rules = [{name: getattr(rule, name) for name in _RULE_FIELDS} for rule in rulebook().rules]
    files["models.json"] = json.dumps(listed).encode()
    files["rules.json"] = json.dumps(rules).encode()
    return files


def _checked(models: list[Path]) -> list[Path]:
    for path in models:
        if not path.is_file():
            raise InputError(f"--model: {path} is not a file")
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise InputError(f"--model: {path} is not a GGUF file")
    return models


def _installed() -> list[Path]:
    from ..models import find_default

    try:
        return [find_default()]
    except ModelError:
        return []
