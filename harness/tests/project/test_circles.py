"""Modules import each other in one direction: what their tops import has no circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
ROOTS: Final = ("harness", "backends", "suites")
PACKAGES: Final = ("kvassay", "kvassay_backends", "kvassay_codecs", "kvassay_suites")


def modules() -> dict[str, Path]:
    """Every module of ours by its name."""
    found = {}
    for root in ROOTS:
        for path in (ROOT / root).glob("kvassay*/**/*.py"):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def at_top(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run with the module; not those of functions, nor those for types alone."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def imported(name: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    """Modules of ours that one imports at its top."""
    found = set()
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in at_top(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            found.add(whole if whole in known else base)
    return {one for one in found if one in known and one != name}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules of a circle, the first one again at the end; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_the_graph_of_modules_has_no_circle() -> None:
    known = modules()
    graph = {name: imported(name, path, known) for name, path in known.items()}
    assert len(graph) > 400
    assert sum(map(len, graph.values())) > 1500
    assert {name.partition(".")[0] for name in graph} == set(PACKAGES)
    assert circle(graph) == []


@pytest.mark.parametrize("inside", [False, True])
def test_a_circle_is_found_and_imports_of_functions_are_none(tmp_path: Path, inside: bool) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("from . import second\n", encoding="utf-8")
    back = "from .first import x\n"
    second.write_text(f"def f():\n    {back}" if inside else back, encoding="utf-8")
    known = {"p.first": first, "p.second": second}
    graph = {name: imported(name, path, known) for name, path in known.items()}
    assert bool(circle(graph)) is not inside
