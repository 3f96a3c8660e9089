"""Tests of the tests: each planted fault is rejected by the rule meant for it, which says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from judging_tools import evidence, tell, verdict_of
from planted.kit import MODEL, PLANTED, Planted, Probe

from kvassay.suite import Target

CONTROLS = ("planted.wrapped:Unbroken", "planted.wrapped:BoundedUnbroken")
#: What a probe shows of an unbroken backend of either kind.
PROBES = tuple(dict.fromkeys((fault.probe, "Bounded" in fault.backend) for fault in PLANTED))


@pytest.fixture(autouse=True)
def _replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASSAY_REPLAY_DIR", str(tmp_path))


def marks(probe: Probe) -> list[pytest.MarkDecorator]:
    """The real model needs its file, and a minute."""
    return [pytest.mark.model, pytest.mark.long] if probe == MODEL else []


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=f"{f.backend}-{f.rule}", marks=marks(f.probe)) for f in PLANTED],
)
def test_rejected_by_the_rule_meant_for_it(
    fault: Planted, record_property: Callable[[str, object], None]
) -> None:
    record_property("planted", f"{fault.backend} ({fault.rule})")
    verdict = verdict_of(fault.target, fault.probe, fault.timeout)
    rejecting: Sequence[str] = verdict.named("reject")
    record_property("rejected by", ", ".join(rejecting) or "nothing")
    print(tell(verdict))
    assert verdict.decision == "REJECT"
    assert fault.rule in rejecting
    (meant,) = (o for o in verdict.outcomes if o.rule.name == fault.rule)
    assert re.search(fault.tells, evidence(meant), re.DOTALL)


@pytest.mark.parametrize(
    ("probe", "bounded"), [pytest.param(*pair, marks=marks(pair[0])) for pair in PROBES]
)
def test_the_same_tasks_pass_without_a_fault(probe: Probe, bounded: bool) -> None:
    verdict = verdict_of(Target(CONTROLS[bounded], "scalar"), probe)
    assert not verdict.named("reject"), tell(verdict)
    meant = {fault.rule for fault in PLANTED if fault.probe == probe}
    assert meant & set(verdict.named("pass"))
