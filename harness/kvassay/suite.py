"""What a suite is: named tasks, each a function of plain data that measures and returns records.

The gate runs tasks in worker processes; `pytest --pyargs kvassay_suites` runs the very same tasks
as tests. Suites are found
through the entry point group `kvassay.suites`; the harness never imports one by name.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .errors import RegistryError
from .model_names import DEFAULT_MODEL
from .plugins import SUITES, load, loaded
from .records import Record

#: quick answers in a minute or two; default is what tests and the gate run (pairwise grids); full
#: is every combination.
Depth = Literal["quick", "default", "full"]
#: Seconds a task may take; the longest of the shipped suites takes about a tenth of it.
DEFAULT_TIMEOUT: Final = 1800.0


@dataclass(frozen=True)
class Target:
    """A backend variant to measure: what `kvassay.load(backend, variant)` takes."""

    backend: str
    variant: str


@dataclass(frozen=True)
class Request:
    """What to measure. `tensors` is the path of a file of captured tensors, "" if none."""

    targets: tuple[Target, ...]
    presets: tuple[str, ...]
    depth: Depth = "default"
    scope: str = "default"
    model: str = DEFAULT_MODEL
    tensors: str = ""


@dataclass(frozen=True)
class Task:
    """One piece of work: `function` is `module:name`, called with `arguments` (plain picklable
    data).

    `label` is shown while it runs and names the test; `weight` is the expected cost in seconds,
    for the progress bar. One that is `alone` runs after the others, with nothing beside it.
    """

    suite: str
    label: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    target: Target | None = None
    preset: str = ""
    stage: str = ""
    weight: float = 1.0
    alone: bool = False

    def load(self) -> Callable[..., list[Record]]:
        """Import the function. Raises ImportError, AttributeError or ValueError."""
        module, _, name = self.function.partition(":")
        function: Callable[..., list[Record]] = getattr(importlib.import_module(module), name)
        return function

    def run(self) -> list[Record]:
        """Import the function and call it."""
        return self.load()(**self.arguments)


class Suite(ABC):
    """What an entry point of the group `kvassay.suites` names, and what it says of itself.

    Each suite has a command of its name; the first line of its module's docstring is its help.
    """

    name: str
    #: "default", or the only scope of gates that run it unasked.
    scope: str = "default"
    #: The scope that its own command judges by.
    command_scope: str = "default"
    #: What `--preset` names: presets of caches, ways to store vectors, formats of the backends.
    judges: Literal["presets", "stored", "formats"] = "presets"
    #: Measures with the model: that it is not installed is no fault of a backend.
    needs_model: bool = False
    #: Runs only where captured tensors are given.
    needs_tensors: bool = False
    #: Takes every variant under pytest; others take the best of each backend, since variants of one
    #: give the same bits.
    every_variant: bool = False
    #: Compares bits, which an emulator does not change; time and memory under one mean nothing.
    emulated_too: bool = False

    @abstractmethod
    def tasks(self, request: Request) -> Sequence[Task]:
        """The tasks for a request; never empty for a non-empty request."""

    def conclude(self, records: Sequence[Record]) -> list[Record]:
        """What else there is to say when all tasks have run: a pure function of their records."""
        return []


def suites() -> dict[str, Suite]:
    """All installed suites by name; RegistryError on duplicates and for what is no Suite."""
    return {name: _checked(name, found) for name, found in loaded(SUITES)}


def _checked(name: str, found: object) -> Suite:
    if not isinstance(found, Suite):
        raise RegistryError(f"suite {name!r}: {found!r} is no instance of kvassay.suite.Suite")
    if found.name != name:
        raise RegistryError(f"suite {name!r}: it calls itself {found.name!r}")
    return found


def in_scope(suite: Suite, scope: str) -> bool:
    """Whether a gate of that scope runs the suite without being told."""
    return suite.scope in ("default", scope)


def wanted(suite: Suite, request: Request) -> bool:
    """Whether a gate that names no suite runs this one for the request."""
    given = bool(request.tensors) or not suite.needs_tensors
    return given and in_scope(suite, request.scope)


def get_suite(name: str) -> Suite:
    """The suite of that name."""
    return _checked(name, load(SUITES, name))
