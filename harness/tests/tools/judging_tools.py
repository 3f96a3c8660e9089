"""Verdicts of the gate on some tasks of one suite, and what they rest on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from planted.kit import PRESET, Probe

from kvassay.judging.gate import Question, Verdict, judge
from kvassay.judging.rules import Outcome
from kvassay.records import Record
from kvassay.running.runner import run, target_tasks
from kvassay.suite import Target


def verdict_of(
    target: Target, probe: Probe, timeout: float | None = None, preset: str = PRESET
) -> Verdict:
    """What the gate says after these tasks, through its own runner and rules."""
    records: list[Record] = []
    tasks = [*target_tasks([target]), *probe.tasks(target, preset)]
    if timeout is not None:
        run(tasks, records.extend, jobs=1, timeout=timeout)
    else:
        with ThreadPoolExecutor(1) as here:
            run(tasks, records.extend, executor=here)
    question = Question("default", (target,), (preset,), suites=(probe.suite,), judge_named=True)
    return judge(records, question).verdicts[0]


def evidence(outcome: Outcome) -> str:
    """Subjects and details of the records that a rule rejects."""
    bad = [r for r in outcome.records if outcome.rule.excess(r.value) > 0]
    return " | ".join(f"{r.subject} {dict(r.detail)}" for r in bad)


def tell(verdict: Verdict) -> str:
    """Every rule that rejects, with its value and evidence."""
    return "\n".join(
        f"{o.rule.name} {o.value:g} ({o.rule.bound}): {evidence(o)[:800]}"
        for o in verdict.outcomes
        if o.state == "reject"
    )
