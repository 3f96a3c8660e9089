"""What the distribution promises: entry points, reasons, layers, sessions, commands."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, distribution
from pathlib import Path
from typing import Any

import pytest

import kvassay

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = ROOT / "pyproject.toml"
PROJECT: dict[str, Any] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))

SESSIONS = {
    "gate",
    "tests",
    "tests_long",
    "correctness",
    "parity",
    "memory",
    "peers",
    "retrieval",
    "models",
    "hf",
    "ort_versions",
    "ort_examples",
    "decoder",
    "foreign",
    "docs",
    "bench",
    "asv",
    "micro",
    "browser",
    "lint",
    "types",
    "build",
    "ort_abi",
    "sanitize",
    "wheel",
    "release",
    "landing",
    "emulate",
    "fuzz",
}

# A package may import what stands to its right, and nothing else of ours.
LAYERS = {
    "harness/kvassay": {"kvassay"},
    "backends/kvassay_backends": {"kvassay", "kvassay_backends"},
    "backends/kvassay_codecs": {"kvassay", "kvassay_backends", "kvassay_codecs"},
    "suites/kvassay_suites": {"kvassay", "kvassay_suites"},
}
OURS = {"kvassay", "kvassay_backends", "kvassay_codecs", "kvassay_suites"}


def entry_points() -> list[EntryPoint]:
    groups = dict(PROJECT["project"]["entry-points"])
    groups["console_scripts"] = PROJECT["project"]["scripts"]
    return [
        EntryPoint(name, value, group)
        for group, points in groups.items()
        for name, value in points.items()
    ]


@pytest.mark.parametrize("point", entry_points(), ids=lambda point: f"{point.group}:{point.name}")
def test_entry_point_resolves(point: EntryPoint) -> None:
    assert point.load() is not None


def test_the_installed_entry_points_are_those_of_the_project() -> None:
    installed = {(p.group, p.name, p.value) for p in distribution("kvassay").entry_points}
    assert installed == {(p.group, p.name, p.value) for p in entry_points()}


def test_promised_entry_points_are_there() -> None:
    names = {(point.group, point.name) for point in entry_points()}
    assert names >= {
        ("console_scripts", "kvassay"),
        ("kvassay.backends", "reference"),
        ("kvassay.backends", "native"),
        ("kvassay.codecs", "kvassay"),
        ("kvassay.suites", "correctness"),
        ("kvassay.suites", "parity"),
        ("kvassay.suites", "memory"),
        ("kvassay.suites", "quality"),
        ("kvassay.suites", "browser"),
        ("kvassay.web", "wasm"),
        ("pytest11", "kvassay_suites"),
    }


def test_version_has_one_source() -> None:
    assert distribution("kvassay").version == kvassay.__version__


def test_every_dependency_has_its_reason() -> None:
    requirements = [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(
            item
            for group in PROJECT["dependency-groups"].values()
            for item in group
            if isinstance(item, str)
        ),
    ]
    with_reason = re.findall(r'^ +"([^"]+)", *# \w.*$', PYPROJECT.read_text("utf-8"), re.MULTILINE)
    assert sorted(set(requirements) - set(with_reason)) == []


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute imports, wherever they stand in the file; relative ones stay in their package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


@pytest.mark.parametrize("package", LAYERS)
def test_a_layer_imports_only_what_lies_below(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files
        for module in imported_modules(path)
        if (top := module.partition(".")[0]) in OURS and top not in LAYERS[package]
    ]
    assert wrong == []


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("nox.session" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def test_promised_sessions_are_there() -> None:
    assert sessions() == SESSIONS


@pytest.mark.parametrize("session", ["gate", "tests"])
def test_the_readme_has_one_command_for(session: str) -> None:
    pattern = rf"^ *python3[.0-9]* -m venv \.venv && .* \.venv/bin/nox -s {session}$"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(pattern, readme, re.MULTILINE)) == 1


def test_ci_runs_sessions_that_exist() -> None:
    workflow = (ROOT / "ci" / "github-actions.yml").read_text(encoding="utf-8")
    run = re.findall(r"run: ci/session\.sh (.+)$", workflow, re.MULTILINE)
    assert run
    assert {name for line in run for name in line.split()} <= SESSIONS


@pytest.mark.parametrize("script", [".ci/run", "ci/gate.sh", "ci/session.sh"])
def test_script_is_executable_and_parses(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)
