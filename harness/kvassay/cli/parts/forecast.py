"""How long the rest of a run takes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Protocol

from ...suite import Task

#: Seconds of tasks of a suite after which what they took says as much as what was expected.
_SURE: Final = 10.0


class Forecast(Protocol):
    """What a display asks."""

    def left(self) -> float | None:
        """Seconds until the end; None while nobody knows."""


class Evenly:
    """Pieces of equal cost: the rest takes as long, each, as those did that have ended."""

    def __init__(self, pieces: int) -> None:
        self._left, self._ended, self._began = pieces, 0, time.monotonic()

    def end(self) -> None:
        """One more has ended."""
        self._left, self._ended = self._left - 1, self._ended + 1

    def left(self) -> float | None:
        """Seconds until the end."""
        if not self._ended:
            return None
        return (time.monotonic() - self._began) / self._ended * self._left


class Expected:
    """Tasks with the seconds that are expected of each, corrected suite by suite by what its tasks
    took: this machine's own speed. As many run beside each other as were ever seen to, `jobs` until
    then; those that must run alone do not.

    From the first moment on there is an answer, and no few short tasks can throw it off: what is
    expected weighs as much as ten seconds of measurement.
    """

    def __init__(self, tasks: Sequence[Task], jobs: int) -> None:
        self._left: dict[tuple[str, bool], float] = defaultdict(float)
        for task in tasks:
            self._left[task.suite, task.alone] += task.weight
        self._expected: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)
        self._jobs, self._seen = jobs, 0

    def running(self, tasks: Sequence[Task]) -> None:
        """These run now."""
        self._seen = max(self._seen, len(tasks))

    def end(self, task: Task, seconds: float) -> None:
        """A task has ended and took that long."""
        self._left[task.suite, task.alone] -= task.weight
        self._expected[task.suite] += task.weight
        self._took[task.suite] += seconds

    def left(self) -> float:
        """Seconds until the end."""
        beside = self._seen or self._jobs
        return sum(
            max(0.0, seconds) * self._slowness(suite) / (1 if alone else beside)
            for (suite, alone), seconds in self._left.items()
        )

    def _slowness(self, suite: str) -> float:
        return (self._took[suite] + _SURE) / (self._expected[suite] + _SURE)
