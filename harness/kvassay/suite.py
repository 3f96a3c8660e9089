"""What a suite is: named tasks, each a function of plain data that measures and returns records.

The gate runs tasks in worker processes; `pytest --pyargs kvassay_suites` runs the very same tasks
as tests. Suites are found
through the entry point group `kvassay.suites`; the harness never imports one by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from .errors import UnknownBackendError
from .plugins import SUITES, loaded
from .records import Record
from .suggest import did_you_mean

#: quick answers within a minute; default is what tests and the gate run (pairwise grids); full is
# every combination.
Depth = Literal["quick", "default", "full"]


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
    model: str = "smollm2-135m"
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


class Suite(Protocol):
    """What an entry point of the group `kvassay.suites` names.

    One that has a `scope` other than "default" runs only in a gate of that scope, and by its name.
    One that has `needs_tensors` runs only where captured tensors are given.
    """

    name: str

    def tasks(self, request: Request) -> Sequence[Task]:
        """The tasks for a request; never empty for a non-empty request."""
        ...


@runtime_checkable
class Concluding(Protocol):
    """A suite that has more to say when all its tasks have run."""

    def conclude(self, records: Sequence[Record]) -> list[Record]:
        """Further records: a pure function of those of a run."""
        ...


def suites() -> dict[str, Suite]:
    """All installed suites by name; raises RegistryError on duplicates."""
    return dict(loaded(SUITES))


def in_scope(suite: Suite, scope: str) -> bool:
    """Whether a gate of that scope runs the suite without being told."""
    return getattr(suite, "scope", "default") in ("default", scope)


def wanted(suite: Suite, request: Request) -> bool:
    """Whether a gate that names no suite runs this one for the request."""
    given = bool(request.tensors) or not getattr(suite, "needs_tensors", False)
    return given and in_scope(suite, request.scope)


def get_suite(name: str) -> Suite:
    """The suite of that name."""
    found = suites()
    if name not in found:
        raise UnknownBackendError(f"no suite {name!r}{did_you_mean(name, found)}")
    return found[name]
