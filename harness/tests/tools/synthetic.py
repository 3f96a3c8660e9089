"""Records, tasks and suites for tests of the harness: nothing here measures a real backend."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvassay.judging.gate import Question
from kvassay.judging.rules import Rule, rulebook
from kvassay.records import Record
from kvassay.suite import Request, Suite, Target, Task

TARGET = Target("reference", "scalar")
PRESET = "turbo"
STORED = "stored-4"
#: A preset of nobody here: a format of somebody's own.
FOREIGN = "q8_0"
STAGES = ("math", "one layer", "tiny transformer")


def make(check: str, value: float, *, n: int = 10, **fields: Any) -> Record:
    """A record of TARGET with PRESET unless told otherwise."""
    plain: dict[str, Any] = {
        "suite": check.partition(".")[0],
        "stage": "math",
        "backend": TARGET.backend,
        "variant": TARGET.variant,
        "unit": "u",
        "preset": PRESET,
        "subject": "",
        "detail": {},
        "reproduce": "",
    }
    return Record(check=check, value=value, comparisons=n, **{**plain, **fields})


def declared(exact: bool = True, wasm: bool = False, returned: bool = False) -> Record:
    """What the runner records about TARGET."""
    evidence = {"linear_memory": wasm, "shipped": True, "returns": returned}
    detail = {"exact": exact, "bound": None, "evidence": evidence}
    return make("run.target", 1.0, stage="", preset="", detail=detail)


def good_value(rule: Rule) -> float:
    """A value inside the bounds."""
    if rule.minimum is not None and rule.maximum is not None:
        return (rule.minimum + rule.maximum) / 2
    return rule.minimum if rule.minimum is not None else float(rule.maximum or 0.0)


def bad_values(rule: Rule) -> list[float]:
    """Values just beyond each bound."""
    bad = []
    if rule.maximum is not None:
        bad.append(rule.maximum + max(1e-9, abs(rule.maximum) * 1e-3))
    if rule.minimum is not None:
        bad.append(rule.minimum - max(1e-9, abs(rule.minimum) * 1e-3))
    return bad


def preset_for(rule: Rule) -> str:
    """A preset that the rule concerns."""
    if {"foreign", "returned"} & set(rule.requires):
        return FOREIGN
    return STORED if "stored" in rule.requires else PRESET


def good_records(
    exact: bool = True,
    scope: str = "default",
    wasm: bool = False,
    stored: bool = False,
    foreign: bool = False,
    returned: bool = False,
) -> list[Record]:
    """Records that pass every rule of a scope, with all required stages."""
    preset = FOREIGN if foreign or returned else STORED if stored else PRESET
    records = [declared(exact, wasm, returned)]
    for rule in rulebook().rules:
        wanted = {"exact": exact, "bounded": not exact, "quantized": True, "scaled": True}
        wanted.update(stored=stored, foreign=foreign or returned, wasm=wasm, native=not wasm)
        wanted.update(returned=returned, declared=not returned)
        wanted.update(shipped=True, built=True, baseline=True, tensors=True)
        if rule.in_scope(scope) and all(wanted[name] for name in rule.requires):
            value = good_value(rule)
            records.append(
                make(rule.check, value, subject=rule.subject.replace("*", "0"), preset=preset)
            )
    records += [make("quality.note", 0.0, stage=stage) for stage in STAGES]
    return records


def kind_for(rule: Rule) -> dict[str, bool]:
    """What `good_records` must be told to be judged by this rule."""
    kinds = {name: name in rule.requires for name in ("wasm", "stored", "foreign", "returned")}
    return {"exact": "bounded" not in rule.requires, **kinds}


def question(
    scope: str = "default", *presets: str, baseline: str = "", tensors: str = ""
) -> Question:
    """TARGET with PRESET, or with the presets given."""
    return Question(scope, (TARGET,), presets or (PRESET,), baseline=baseline, tensors=tensors)


def question_for(rule: Rule) -> Question:
    """A question that this rule answers."""
    baseline = "b.jsonl" if "baseline" in rule.requires else ""
    tensors = "t.safetensors" if "tensors" in rule.requires else ""
    return question(rule.scope, preset_for(rule), baseline=baseline, tensors=tensors)


# --- tasks ----------------------------------------------------------------------------------------


def measure(records: Sequence[Record]) -> list[Record]:
    """A task that measured these."""
    return list(records)


def environment() -> list[Record]:
    """A task that says how many threads numpy may use in the worker."""
    return [make("quality.threads", float(os.environ["OMP_NUM_THREADS"]))]


def fail(message: str) -> list[Record]:
    """A task that raises."""
    raise ValueError(f"first line\n{message}")


def abort() -> list[Record]:
    """A task whose native code dies."""
    os.abort()


def leave() -> list[Record]:
    """A task that ends its process without a word."""
    os._exit(3)


def sleep(seconds: float) -> list[Record]:
    """A task that takes its time."""
    time.sleep(seconds)
    return [make("quality.slept", seconds)]


def nothing() -> list[Record]:
    """A task without a result."""
    return []


def nonsense() -> object:
    """A task that returns something else."""
    return ["not a record"]


def task(name: str, target: Target | None = TARGET, weight: float = 1.0, **arguments: Any) -> Task:
    """A task of this module."""
    return Task(
        suite="quality",
        label=f"{name} {arguments}" if name != "measure" else name,
        function=f"synthetic:{name}",
        arguments=arguments,
        target=target,
        preset=PRESET,
        stage="math",
        weight=weight,
    )


@dataclass
class FakeSuite(Suite):
    """A suite of given tasks, that remembers what it was asked."""

    name: str
    given: list[Task]
    request: Request | None = None

    def tasks(self, request: Request) -> Sequence[Task]:
        self.request = request
        return self.given
