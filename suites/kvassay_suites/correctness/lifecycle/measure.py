"""Runs the state machine against a target: one record."""

from __future__ import annotations

import tempfile
from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.stateful import run_state_machine_as_test

import kvassay
from kvassay.records import Record

from ...common.specs import ONE_LAYER, record
from .machine import LifecycleMachine

#: What hypothesis does: draw sequences, and shorten the one that fails.
PHASES: Final = (Phase.generate, Phase.shrink)


def run(backend: str, variant: str, sequences: int, steps: int, same: bool = True) -> type[Any]:
    """Drive a machine of this target; it raises what it found. With `same` the sequences are those
    of every run."""

    class Machine(LifecycleMachine):
        pass

    Machine.backend = kvassay.load(backend, variant)
    chosen = settings(
        max_examples=sequences,
        stateful_step_count=steps,
        derandomize=same,
        database=None,
        deadline=None,
        print_blob=False,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    with tempfile.TemporaryDirectory() as folder:  # hypothesis keeps a folder where one works
        set_hypothesis_home_dir(folder)
        try:
            run_state_machine_as_test(Machine, settings=chosen)
        finally:
            set_hypothesis_home_dir(None)
    return Machine


def measure(backend: str, variant: str, sequences: int, steps: int) -> list[Record]:
    """1 if a sequence of operations was found that a cache does not stand, with that sequence."""
    detail: dict[str, Any] = {"sequences": sequences, "longest": steps}
    failed, compared = 0.0, 1
    try:
        compared = run(backend, variant, sequences, steps).compared
    except Exception as error:
        failed = 1.0
        notes = [*getattr(error, "__notes__", ()), f"{type(error).__name__}: {error}"]
        detail["found"] = notes
    return [
        record(
            *("correctness.lifecycle", ONE_LAYER, backend, variant, failed, "sequences", compared),
            detail=detail,
        )
    ]
