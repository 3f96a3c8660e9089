"""Tests of a backend for its own project: one class to subclass, one fixture to give.

    from kvassay_suites.testing import BackendTests

    class TestMine(BackendTests):
        @pytest.fixture
        def backend(self):
            return "mypackage.backend:Mine"  # or a registered name, or the class itself

Each test runs one suite in a quick look and fails with every task that a rule rejects.
"""

from __future__ import annotations

import pytest

from kvassay.presets import PRESETS
from kvassay.protocol import Backend
from kvassay.running.targets import choose_targets
from kvassay.suite import Depth, Request, get_suite

from .plugin import check_task


class BackendTests:
    """Correctness, parity and memory of a backend. `depth` and `presets` may be overridden."""

    depth: Depth = "quick"
    presets: tuple[str, ...] = tuple(PRESETS)

    @pytest.fixture
    def backend(self) -> str | type[Backend]:
        """The backend: a registered name, `module:Class`, or a class that can be imported."""
        raise NotImplementedError("give a fixture `backend` in your subclass of BackendTests")

    def check(self, suite: str, backend: str | type[Backend]) -> int:
        """Run a suite; AssertionError lists each task that failed. Returns how many ran."""
        if not isinstance(backend, str):
            backend = f"{backend.__module__}:{backend.__qualname__}"
        request = Request(choose_targets([backend], []), self.presets, depth=self.depth)
        failures = []
        tasks = get_suite(suite).tasks(request)
        for task in tasks:
            try:
                check_task(task)
            except Exception as error:  # whatever somebody's backend raises
                failures.append(f"{task.label}: {type(error).__name__}: {error}")
        assert tasks, f"{suite}: nothing to measure is a failure, not a pass"
        said = f"{suite}: {len(failures)} of {len(tasks)} tasks failed"
        assert not failures, "\n".join([said, *failures])
        return len(tasks)

    def test_correctness(self, backend: str | type[Backend]) -> None:
        """Codecs by theory, faults, life cycle."""
        self.check("correctness", backend)

    def test_parity(self, backend: str | type[Backend]) -> None:
        """Bits beside the reference, or the declared bound."""
        self.check("parity", backend)

    def test_memory(self, backend: str | type[Backend]) -> None:
        """Bytes billed and held."""
        self.check("memory", backend)
