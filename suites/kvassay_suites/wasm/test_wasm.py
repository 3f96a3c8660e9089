"""The tasks of the suite as tests."""

from kvassay.suite import Task

from ..plugin import check_task
from . import suite

__all__ = ["suite"]


def test_task(kvassay_task: Task) -> None:
    check_task(kvassay_task)
