"""Quality of every backend and preset, task by task, as the gate measures it."""

from __future__ import annotations

from kvassay.suite import Task
from kvassay_suites.plugin import check_task
from kvassay_suites.quality import suite

__all__ = ["suite"]


def test_task(kvassay_task: Task) -> None:
    check_task(kvassay_task)
