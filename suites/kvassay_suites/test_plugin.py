"""The plugin: what it refuses, and that measuring nothing or being rejected fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvassay.judging.required import REQUIRED
from kvassay.suite import Task

from .common.specs import MATH, record
from .plugin import check_task

HERE = "kvassay_suites.test_plugin"


@pytest.fixture(autouse=True)
def _nothing_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine's owner requires of the real backends is not asked of those in a test."""
    monkeypatch.delenv(REQUIRED, raising=False)


_SUITE = """
import kvassay.suite

class Suite(kvassay.suite.Suite):
    name = "made up"
    def tasks(self, request):
        return []

suite = Suite()

def test_task(kvassay_task):
    pass
"""


def made(
    value: float, comparisons: int, check: str = "correctness.faults", unit: str = "cases"
) -> list[object]:
    """A record of the reference, for the tests below."""
    return [record(check, MATH, "reference", "scalar", value, unit, comparisons)]


def nothing() -> list[object]:
    """No record at all."""
    return []


def _task(function: str, **arguments: object) -> Task:
    return Task("correctness", "made up", f"{HERE}:{function}", arguments)


def test_a_good_record_passes() -> None:
    assert len(check_task(_task("made", value=0, comparisons=3))) == 1


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (_task("nothing"), "no records"),
        (_task("made", value=0, comparisons=0), "nothing was compared"),
        (_task("made", value=2, comparisons=3), "correctness.faults .* reject at 2"),
        (_task("made", value=float("nan"), comparisons=3), "reject"),
        (
            _task("made", value=1, comparisons=1, check="parity.mismatches", unit="values"),
            "parity.mismatches .* reject at 1",
        ),
        (_task("made", value=0, comparisons=3, unit="files"), "in files, correctness.faults in"),
    ],
)
def test_these_fail(task: Task, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_task(task)


def test_rules_that_bind_others_do_not_bind() -> None:
    """An error bound is no matter of an exact backend."""
    assert check_task(_task("made", value=9, comparisons=1, check="parity.relative_error"))


def _pytest(*arguments: str, cwd: Path) -> tuple[int, str]:
    plugins = ("-p", "no:cacheprovider", "-p", "kvassay")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kvassay-backend", "refrence"), "did you mean"),
        (
            ("--kvassay-variant", "scalar", "--kvassay-variant", "avx9000"),
            "no variant 'avx9000'",
        ),
        (("--kvassay-preset", "tubro"), "did you mean"),
        (("--kvassay-backend", "reference"), "nothing to measure is a failure"),
    ],
)
def test_these_are_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    (tmp_path / "test_made_up.py").write_text(_SUITE)
    status, said = _pytest(*options, "test_made_up.py", cwd=tmp_path)
    assert status != 0
    assert message in said


_OTHERS = """
def pytest_addoption(parser):
    parser.addoption("--backend")

def pytest_report_header(config):
    return f"theirs: {config.getoption('--backend')}, {config.pluginmanager.hasplugin('kvassay')}"
"""


def test_projects_that_do_not_ask_for_it_never_meet_it(tmp_path: Path) -> None:
    """Its options would break those of others, and what it asks of a machine takes seconds."""
    (tmp_path / "conftest.py").write_text(_OTHERS)
    (tmp_path / "test_theirs.py").write_text("def test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--backend", "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "theirs: x, False" in done.stdout
    assert "kvassay:" not in done.stdout


_SUBCLASS = """
import pytest
from kvassay_suites.testing import BackendTests

class TestMine(BackendTests):
    presets = ("fp16",)

    @pytest.fixture
    def backend(self):
        return {backend!r}
"""


@pytest.mark.parametrize(
    ("backend", "status", "said"),
    [
        ("native", 0, "1 passed"),
        ("planted.cases:CrossTalk", 1, "fault 29: cross-talk between sequences: AssertionError"),
        ("planted.cases:CrossTalks", 1, "CrossTalks"),
    ],
)
def test_a_class_to_subclass(tmp_path: Path, backend: str, status: int, said: str) -> None:
    (tmp_path / "test_mine.py").write_text(_SUBCLASS.format(backend=backend))
    planted = Path(__file__).parents[2] / "harness" / "tests"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(planted), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "correctness"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout
