"""Shows how far work is: a progress bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import threading
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
)
from rich.table import Column
from rich.text import Text

from ...suite import Task
from .forecast import Evenly, Expected, Forecast
from .terminal import NARROW

if TYPE_CHECKING:
    from ...running.runner import Answer, Watch

#: Seconds between plain lines: where there is something new to say, and where there is not.
_OFTEN: Final = 10.0
_SELDOM: Final = 25.0
_BEAT: Final = 1.0


@contextmanager
def watching(
    tasks: Sequence[Task], console: Console, quiet: bool, jobs: int
) -> Iterator[Watch | None]:
    """A watch for a run of these tasks by `jobs` workers, on `console`: not where results go."""
    if quiet:
        yield None
        return
    forecast = Expected(tasks, jobs)
    with _shown([task.weight for task in tasks], "tasks", forecast, console) as shown:
        yield _Tasks(shown, forecast)


@contextmanager
def counting(count: int, noun: str, console: Console) -> Iterator[Callable[[str], None]]:
    """What to call with the name of each of `count` pieces of work that has ended."""
    forecast = Evenly(count)
    with _shown([1.0] * count, noun, forecast, console) as shown, _beating(shown):

        def ended(name: str) -> None:
            forecast.end()
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
def _shown(
    costs: Sequence[float], noun: str, forecast: Forecast, console: Console
) -> Iterator[_Bar | _Lines]:
    """A display of work that is expected to cost that much, each piece in any one unit."""
    state = _State(costs, forecast)
    if console.is_terminal:
        with _Bar(state, console) as bar:
            yield bar
        return
    lines = _Lines(state, noun, console)
    try:
        yield lines
    finally:
        lines.close()


@contextmanager
def _beating(shown: _Bar | _Lines) -> Iterator[None]:
    """Lets a display say in between that work goes on: of a piece that takes long nobody tells."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT):
            shown.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Tasks:
    """Tells a display about the tasks of a run."""

    def __init__(self, shown: _Bar | _Lines, forecast: Expected) -> None:
        self._shown, self._forecast = shown, forecast

    def running(self, tasks: Sequence[Task]) -> None:
        self._forecast.running(tasks)
        self._shown.doing(", ".join(_name(task) for task in tasks))

    def done(self, task: Task, answer: Answer) -> None:
        self._forecast.end(task, answer.seconds)
        self._shown.end(task.weight, f"{_name(task)}: {answer.error}" if answer.error else "")


class _State:
    """How much has ended, how much of it failed, and how long the rest takes."""

    def __init__(self, costs: Sequence[float], forecast: Forecast) -> None:
        self.count, self.errors, self.all = 0, 0, len(costs)
        self.whole, self.forecast = sum(costs), forecast

    def end(self, error: str) -> None:
        self.count += 1
        self.errors += bool(error)

    @property
    def failed(self) -> str:
        return f", {self.errors} failed" if self.errors else ""

    @property
    def left(self) -> str:
        """How long the rest takes, in words; "" where there is none or nobody knows."""
        seconds = self.forecast.left()
        return "" if seconds is None or self.count == self.all else f"about {in_words(seconds)}"


def in_words(seconds: float) -> str:
    """A length of time to two digits or so."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1.0, seconds):.0f} s"


class _Bar(Progress):
    """What runs, how much is left by expected cost, and what failed."""

    def __init__(self, state: _State, console: Console) -> None:
        super().__init__(*_columns(state, console), console=console, transient=True, expand=True)
        self._state = state
        self._id = self.add_task("starting", total=state.whole, count=f"0/{state.all}")

    def doing(self, what: str) -> None:
        self.update(self._id, description=what)

    def beat(self) -> None:
        """Nothing: a bar moves by itself."""

    def end(self, cost: float, error: str = "") -> None:
        state = self._state
        state.end(error)
        if error:
            self.console.print(error, markup=False, style="red", soft_wrap=True)
        self.update(self._id, advance=cost, count=f"{state.count}/{state.all}{state.failed}")


class _Left(ProgressColumn):
    """How long the rest takes."""

    max_refresh = 0.5

    def __init__(self, state: _State) -> None:
        super().__init__(Column(no_wrap=True, min_width=16))
        self._state = state

    def render(self, task: object) -> Text:
        return Text(f"{self._state.left or '?'} left")


def _columns(state: _State, console: Console) -> list[ProgressColumn]:
    """On a narrow terminal what runs is cut, never count and times."""
    return [
        TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=24 if console.width >= NARROW else 8),
        TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        _Left(state),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
    ]


class _Lines:
    """A line for each failure, one now and then for the rest, and one at the end."""

    def __init__(self, state: _State, noun: str, console: Console) -> None:
        self._console, self._state = console, state
        self._lock, self._last, self._what = threading.Lock(), time.monotonic(), ""
        self._told = (0, "")
        expected = f", {state.left}" if state.left else ""
        self._say(f"{state.all} {noun}{expected}")

    def doing(self, what: str) -> None:
        self._what = what
        self.beat()

    def beat(self) -> None:
        """The state, if it was not said for long; sooner where it is another one."""
        new = (self._state.count, self._what) != self._told
        self._now_and_then(_OFTEN if new else _SELDOM)

    def end(self, cost: float, error: str = "") -> None:
        self._state.end(error)
        if error:
            self._say(error)

    def close(self) -> None:
        """The last state, also of work that was stopped."""
        state = self._state
        self._say(f"{state.count}/{state.all} done{state.failed}")

    def _now_and_then(self, silence: float) -> None:
        if time.monotonic() - self._last <= silence:
            return
        state = self._state
        left = f", {state.left} left" if state.left else ""
        what = f": {self._what}" if self._what else ""
        self._told = (state.count, self._what)
        self._say(f"{state.count}/{state.all} done{state.failed}{left}{what}")

    def _say(self, line: str) -> None:
        with self._lock:
            self._last = time.monotonic()
            self._console.print(line, markup=False, soft_wrap=True)


def _name(task: Task) -> str:
    name = f"{task.suite}: {task.label}"
    if task.target is None or task.target.backend in task.label:
        return name
    return f"{name} ({task.target.backend}/{task.target.variant})"
