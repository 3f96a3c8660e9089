"""Shows a run: a progress bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from ...running.runner import Answer, Watch
from ...suite import Task
from .terminal import NARROW

#: Seconds between plain lines.
_QUIET_SECONDS = 10.0


@contextmanager
def watching(tasks: Sequence[Task], console: Console, quiet: bool) -> Iterator[Watch | None]:
    """A watch for a run of these tasks, on `console` (not where results go)."""
    if quiet:
        yield None
    elif console.is_terminal:
        with _Bar(tasks, console) as bar:
            yield bar
    else:
        lines = _Lines(tasks, console)
        try:
            yield lines
        finally:
            lines.end()


class _Bar(Progress):
    """What runs, how much is left by expected cost, and what failed."""

    def __init__(self, tasks: Sequence[Task], console: Console) -> None:
        super().__init__(
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
            console=console,
            transient=True,
            expand=True,
        )
        self._count, self._errors, self._all = 0, 0, len(tasks)
        self._id = self.add_task(
            "starting", total=sum(task.weight for task in tasks), count=f"0/{self._all}"
        )

    def running(self, tasks: Sequence[Task]) -> None:
        self.update(self._id, description=", ".join(_name(task) for task in tasks)[:60])

    def done(self, task: Task, answer: Answer) -> None:
        self._count += 1
        if answer.error:
            self._errors += 1
            self.console.print(f"{_name(task)}: {answer.error}", markup=False, style="red")
        failed = f", {self._errors} failed" if self._errors else ""
        self.update(self._id, advance=task.weight, count=f"{self._count}/{self._all}{failed}")


class _Lines:
    """A line for each failure, and one now and then for the rest."""

    def __init__(self, tasks: Sequence[Task], console: Console) -> None:
        self._console = console
        self._count, self._errors, self._all = 0, 0, len(tasks)
        self._last = time.monotonic()
        self._say(f"{self._all} tasks")

    def running(self, tasks: Sequence[Task]) -> None:
        if time.monotonic() - self._last > _QUIET_SECONDS:
            names = ", ".join(_name(task) for task in tasks)
            self._say(f"{self._count}/{self._all} done; running: {names}")

    def done(self, task: Task, answer: Answer) -> None:
        self._count += 1
        if answer.error:
            self._errors += 1
            self._say(f"{_name(task)}: {answer.error}")

    def end(self) -> None:
        """The last state, also of a run that was stopped."""
        failed = f", {self._errors} failed" if self._errors else ""
        self._say(f"{self._count}/{self._all} done{failed}")

    def _say(self, line: str) -> None:
        self._last = time.monotonic()
        self._console.print(line, markup=False, soft_wrap=True)


def _name(task: Task) -> str:
    name = f"{task.suite}: {task.label}"
    if task.target is None or task.target.backend in task.label:
        return name
    return f"{name} ({task.target.backend}/{task.target.variant})"
