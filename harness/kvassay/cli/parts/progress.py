"""Shows how far work is: a progress bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from ...suite import Task
from .terminal import NARROW

if TYPE_CHECKING:
    from ...running.runner import Answer, Watch

#: Seconds between plain lines.
_QUIET_SECONDS: Final = 10.0


@contextmanager
def watching(tasks: Sequence[Task], console: Console, quiet: bool) -> Iterator[Watch | None]:
    """A watch for a run of these tasks, on `console` (not where results go)."""
    if quiet:
        yield None
        return
    with _shown([task.weight for task in tasks], "tasks", console) as shown:
        yield _Tasks(shown)


@contextmanager
def counting(count: int, noun: str, console: Console) -> Iterator[Callable[[str], None]]:
    """What to call with the name of each of `count` pieces of work that has ended."""
    with _shown([1.0] * count, noun, console) as shown:

        def ended(name: str) -> None:
            shown.end(1.0)
            shown.doing(name)

        yield ended


def tracking(names: Sequence[str], noun: str, console: Console) -> Iterator[str]:
    """The names one after the other: a piece of work has ended when the next is asked for."""
    with counting(len(names), noun, console) as ended:
        for name in names:
            yield name
            ended(name)


@contextmanager
def _shown(costs: Sequence[float], noun: str, console: Console) -> Iterator[_Bar | _Lines]:
    """A display of work that is expected to cost that much, each piece in any one unit."""
    if console.is_terminal:
        with _Bar(costs, console) as bar:
            yield bar
        return
    lines = _Lines(costs, noun, console)
    try:
        yield lines
    finally:
        lines.close()


class _Tasks:
    """Tells a display about the tasks of a run."""

    def __init__(self, shown: _Bar | _Lines) -> None:
        self._shown = shown

    def running(self, tasks: Sequence[Task]) -> None:
        self._shown.doing(", ".join(_name(task) for task in tasks))

    def done(self, task: Task, answer: Answer) -> None:
        self._shown.end(task.weight, f"{_name(task)}: {answer.error}" if answer.error else "")


class _State:
    """How much has ended, and how much of it failed."""

    def __init__(self, costs: Sequence[float]) -> None:
        self.count, self.errors, self.all = 0, 0, len(costs)
        self.cost, self.whole = 0.0, sum(costs)
        self.began = time.monotonic()

    def end(self, cost: float, error: str) -> None:
        self.count += 1
        self.errors += bool(error)
        self.cost += cost

    @property
    def failed(self) -> str:
        return f", {self.errors} failed" if self.errors else ""

    @property
    def left(self) -> str:
        """How long the rest takes if it goes on as it went."""
        if not self.cost or self.count == self.all:
            return ""
        elapsed = time.monotonic() - self.began
        return f", about {_in_words(elapsed * (self.whole / self.cost - 1))} left"


def _in_words(seconds: float) -> str:
    """A length of time to two digits or so."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1.0, seconds):.0f} s"


class _Bar(Progress):
    """What runs, how much is left by expected cost, and what failed."""

    def __init__(self, costs: Sequence[float], console: Console) -> None:
        super().__init__(*_columns(console), console=console, transient=True, expand=True)
        self._state = _State(costs)
        self._id = self.add_task("starting", total=self._state.whole, count=f"0/{len(costs)}")

    def doing(self, what: str) -> None:
        self.update(self._id, description=what)

    def end(self, cost: float, error: str = "") -> None:
        state = self._state
        state.end(cost, error)
        if error:
            self.console.print(error, markup=False, style="red", soft_wrap=True)
        self.update(self._id, advance=cost, count=f"{state.count}/{state.all}{state.failed}")


def _columns(console: Console) -> list[ProgressColumn]:
    """On a narrow terminal what runs is cut, never count and times."""
    return [
        TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=24 if console.width >= NARROW else 8),
        TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("left", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
    ]


class _Lines:
    """A line for each failure, one now and then for the rest, and one at the end."""

    def __init__(self, costs: Sequence[float], noun: str, console: Console) -> None:
        self._console, self._state = console, _State(costs)
        self._last = time.monotonic()
        self._say(f"{len(costs)} {noun}")

    def doing(self, what: str) -> None:
        if time.monotonic() - self._last > _QUIET_SECONDS:
            state = self._state
            self._say(f"{state.count}/{state.all} done{state.failed}{state.left}: {what}")

    def end(self, cost: float, error: str = "") -> None:
        self._state.end(cost, error)
        if error:
            self._say(error)

    def close(self) -> None:
        """The last state, also of work that was stopped."""
        state = self._state
        self._say(f"{state.count}/{state.all} done{state.failed}")

    def _say(self, line: str) -> None:
        self._last = time.monotonic()
        self._console.print(line, markup=False, soft_wrap=True)


def _name(task: Task) -> str:
    name = f"{task.suite}: {task.label}"
    if task.target is None or task.target.backend in task.label:
        return name
    return f"{name} ({task.target.backend}/{task.target.variant})"
