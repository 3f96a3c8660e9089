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
    expected weighs as much as ten seconds of measurement. It counts down while a task runs.
    """

    def __init__(self, tasks: Sequence[Task], jobs: int) -> None:
        self._left: dict[tuple[str, bool], float] = defaultdict(float)
        for task in tasks:
            self._left[task.suite, task.alone] += task.weight
        self._expected: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)
        self._jobs, self._seen = jobs, 0
        self._since: dict[int, tuple[Task, float]] = {}

    def running(self, tasks: Sequence[Task]) -> None:
        """These run now."""
        self._seen = max(self._seen, len(tasks))
        now = time.monotonic()
        self._since = {id(one): self._since.get(id(one), (one, now)) for one in tasks}

    def end(self, task: Task, seconds: float) -> None:
        """A task has ended and took that long."""
        self._left[task.suite, task.alone] -= task.weight
        self._expected[task.suite] += task.weight
        self._took[task.suite] += seconds
        self._since.pop(id(task), None)

    def left(self) -> float:
        """Seconds until the end."""
        beside, now = self._seen or self._jobs, time.monotonic()
        rest = {key: seconds * self._slowness(key[0]) for key, seconds in self._left.items()}
        for task, since in self._since.values():
            whole = task.weight * self._slowness(task.suite)
            rest[task.suite, task.alone] -= min(whole, now - since)
        return sum(
            max(0.0, seconds) / (1 if alone else beside) for (_, alone), seconds in rest.items()
        )

    def _slowness(self, suite: str) -> float:
        return (self._took[suite] + _SURE) / (self._expected[suite] + _SURE)
