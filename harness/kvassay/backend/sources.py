"""Digests of the code that computes: of a package, of a module with its neighbours, of a class."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Collection, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..errors import KvassayError

_LIBRARIES: Final = (".so", ".dylib", ".dll", ".pyd", ".wasm")
#: Files of a package that decide what it computes.
_TEXTS: Final = (".py", ".toml", ".json")


@cache
def code_digest(package: str, libraries: bool = False) -> str:
    """Hex sha256 of the code of an installed package or module, names included.

    With a module by itself go the modules beside it that it imports. libraries: also of compiled
    code in the package, or beside the module. Raises KvassayError for what is not from files.
    """
    try:
        found = find_spec(package)
    except ValueError:  # a module without one, such as __main__
        found = None
    folders = [Path(place) for place in found.submodule_search_locations or ()] if found else []
    origin = Path(found.origin) if found and found.origin else None
    suffixes = (*_TEXTS, *_LIBRARIES) if libraries else _TEXTS
    files = {path for one in folders for path in one.rglob("*") if path.suffix in suffixes}
    if not folders and origin and origin.is_file():
        folders = [origin.parent]
        _follow(origin, files, suffixes)
        files |= {
            path for path in origin.parent.iterdir() if path.suffix in suffixes[len(_TEXTS) :]
        }
    if not files:
        raise KvassayError(f"{package!r} is not installed here, or not from files")
    digest = hashlib.sha256()
    for path in sorted(files):
        place = next(path.relative_to(one) for one in folders if path.is_relative_to(one))
        digest.update(f"{place}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def sources_of(cls: type) -> str:
    """`sources` and a hex sha256 of the code that a class and its bases are from, but for Python's
    and the harness's own; "" where no file has it."""
    modules = {base.__module__.partition(".")[0] for base in cls.__mro__}
    mine = sorted(modules - sys.stdlib_module_names - {"kvassay"})
    try:
        digests = "".join(code_digest(name, libraries=True) for name in mine)
    except KvassayError:
        return ""
    return f"sources {hashlib.sha256(digests.encode()).hexdigest()}" if mine else ""


def _follow(path: Path, files: set[Path], suffixes: Collection[str]) -> None:
    """Add a module, and what it imports from its folder."""
    if path in files:
        return
    files.add(path)
    for name in _imported(path):
        package = path.parent / name
        if package.is_dir():
            files.update(one for one in package.rglob("*") if one.suffix in suffixes)
        elif (module := package.with_suffix(".py")).is_file():
            _follow(module, files, suffixes)


def _imported(path: Path) -> Iterator[str]:
    """Top names of all modules that a file imports, wherever in it."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # whoever imports it will say so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
