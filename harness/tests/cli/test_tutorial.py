"""docs/add-a-backend.md: every command is run as it is written, in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "add-a-backend.md"
_BLOCK: Final = re.compile(r"^### (.+?)$|^```(\w+)\n(.*?)^```$", re.M | re.S)
#: The doors that the page has a section for.
DOORS: Final = (
    "Python",
    "C",
    "C++",
    "Rust",
    "WebAssembly",
    "A format of your own",
    "transformers",
    "A codec of arrays",
)


@dataclass(frozen=True)
class Block:
    """A fenced block, its language, and the section it is in."""

    section: str
    language: str
    text: str


def blocks() -> list[Block]:
    """All fenced blocks of the page, in order."""
    found, section = [], ""
    for heading, language, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        section = heading or section
        if language:
            found.append(Block(section, language, text))
    return found


def shell(section: str) -> str:
    """The commands of a section as one script."""
    return "\n".join(b.text for b in blocks() if (b.section, b.language) == (section, "sh"))


def environment() -> Mapping[str, str]:
    """Where `python`, `kvassay` and `pytest` are those that run this test."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": tools, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script, ending at the first command that fails."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)


def needs(section: str) -> None:
    """Skip where the tool that a section says it needs is missing."""
    if section == "Rust" and shutil.which("cargo") is None:
        pytest.skip("cargo not found: the commands for Rust were not run")
    if section == "transformers" and not all(map(find_spec, ("torch", "transformers"))):
        pytest.skip("torch or transformers not found: the commands were not run (nox -s hf)")


def test_the_page_has_every_door_and_nothing_unknown() -> None:
    found = blocks()
    assert {b.section for b in found if b.language == "sh"} == set(DOORS)
    assert {b.language for b in found} == {"sh", "python"}
    for section in DOORS:
        assert re.search(
            r"^kvassay gate --(backend|library|wasm|hf-cache|codec) ", shell(section), re.M
        )


def test_its_python_runs(tmp_path: Path) -> None:
    (code,) = (b.text for b in blocks() if b.language == "python")
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    done = run("python code.py", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("section", DOORS)
def test_the_commands_before_the_gate(section: str, tmp_path: Path) -> None:
    needs(section)
    gated = re.compile(r"^kvassay gate .*$", re.M)
    done = run(gated.sub("kvassay gate --help > help.txt", shell(section)), tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = tmp_path.rglob("help.txt")
    assert "--judge-named" in said.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("section", DOORS)
def test_every_command_of_a_door(section: str, tmp_path: Path) -> None:
    needs(section)
    done = run(shell(section), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


def test_a_command_that_fails_is_seen(tmp_path: Path) -> None:
    assert run("false\ntrue", tmp_path).returncode == 1
