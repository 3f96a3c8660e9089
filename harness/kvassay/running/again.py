"""What runs one task again: the command that records name, and the task that it finds."""

from __future__ import annotations

import json
import shlex
from typing import Final

from ..errors import UnknownBackendError
from ..suggest import did_you_mean
from ..suite import Request, Task, get_suite

#: Characters of arguments beyond which a command names the task by its label instead.
_LONGEST: Final = 2000


def command(task: Task, depth: str = "") -> str:
    """A shell command that runs a task again, alone: by its function and arguments, or, where those
    are too long for a reader, by its suite, the depth that was asked for, and its label."""
    arguments = json.dumps(dict(task.arguments), sort_keys=True, default=repr)
    if len(arguments) <= _LONGEST:
        return f"kvassay run {shlex.quote(task.function)} {shlex.quote(arguments)}"
    whom = {"depth": depth, "preset": task.preset}
    if task.target:
        whom |= {"backend": task.target.backend, "variant": task.target.variant}
    options = [f"--{name} {shlex.quote(value)}" for name, value in whom.items() if value]
    return " ".join(["kvassay run", shlex.quote(task.suite), shlex.quote(task.label), *options])


def labelled(suite: str, label: str, request: Request, preset: str = "") -> Task:
    """The task of a suite for a request with that label and of that preset, "" if it is of none.

    Raises UnknownBackendError with a near label where there is none.
    """
    tasks = get_suite(suite).tasks(request)
    for task in tasks:
        if task.label == label and task.preset == preset:
            return task
    near = did_you_mean(label, [task.label for task in tasks])
    raise UnknownBackendError(f"suite {suite} has no task {label!r} for this request{near}")
