"""Planted faults as shared libraries: each is rejected by the rule meant for it, which says why."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from judging_tools import evidence, tell, verdict_of
from native_tools import BUILT, compile_c
from planted import libraries
from planted.kit import Probe
from planted.libraries import PLANTED, Fault

from kvassay.cli.parts.files import try_files
from kvassay.judging.gate import Question, judge
from kvassay.judging.wording import describe
from kvassay.suite import Target

SOURCE = Path(__file__).parents[1] / "planted" / "faulty.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The library with a fault: one build, of which each fault is a copy under another name."""
    folder = tmp_path_factory.mktemp("faulty")
    built = folder / "built.so"
    needed = ["-Wl,--no-as-needed", str(BUILT), f"-Wl,-rpath,{BUILT.parent}"]
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-lm"]
    compile_c([*flags, str(SOURCE), *needed, "-o", str(built)])

    def with_fault(number: int) -> Path:
        path = folder / f"fault-{number:02}.so"
        if not path.exists():  # one that is loaded must not be written again
            shutil.copyfile(built, path)
        return path

    return with_fault


@pytest.fixture(autouse=True)
def _replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASSAY_REPLAY_DIR", str(tmp_path))
    monkeypatch.setenv("KVASSAY_PROBED", "{}")


#: Waits for its time to be over, once a task.
_SLOW = "hangs with several queries"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(f, id=f.what, marks=[pytest.mark.long] if f.what == _SLOW else [])
        for f in PLANTED
    ],
)
def test_rejected_by_the_rule_meant_for_it(
    fault: Fault, library: Callable[[int], Path], record_property: Callable[[str, object], None]
) -> None:
    record_property("planted", f"library: {fault.what} ({fault.rule})")
    names, rejected = try_files({"library": [library(fault.number)]})
    if fault.probe is libraries.DOOR:
        assert not names
        (one,) = rejected
        question = Question("default", (one.target,), ("turbo",))
        verdict = judge([one.record], question).verdicts[0]
    else:
        assert names, [one.reason for one in rejected]
        verdict = verdict_of(Target(names[0], "scalar"), fault.probe, fault.timeout)
    record_property("rejected by", ", ".join(verdict.named("reject")) or "nothing")
    assert verdict.decision == "REJECT"
    assert fault.rule in verdict.named("reject"), tell(verdict)
    (meant,) = (o for o in verdict.outcomes if o.rule.name == fault.rule)
    assert re.search(fault.tells, evidence(meant), re.DOTALL), evidence(meant)
    if fault.probe in (libraries.OUTSIDE, libraries.BEYOND):  # reports say it, not the file alone
        assert re.search(fault.tells, describe(meant.records[0]), re.DOTALL)


#: Without a fault, as a whole cache and as kernels.
_SOUND = {
    **{(99, f.probe): None for f in PLANTED if f.probe is not libraries.DOOR},
    **{(98, probe): None for probe in (libraries.OUTSIDE, libraries.BEYOND)},
}


@pytest.mark.parametrize(("number", "probe"), _SOUND)
def test_the_same_library_passes_without_a_fault(
    number: int, probe: Probe, library: Callable[[int], Path]
) -> None:
    (name,), rejected = try_files({"library": [library(number)]})
    assert not rejected
    verdict = verdict_of(Target(name, "scalar"), probe)
    assert not verdict.named("reject"), tell(verdict)
    assert verdict.named("pass")
