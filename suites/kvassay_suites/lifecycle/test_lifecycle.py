"""The life cycle as tests: one a target."""

import pytest

from kvassay.suite import Task

from ..plugin import check_task, request_of
from . import suite
from .measure import run

__all__ = ["suite"]


def test_task(kvassay_task: Task) -> None:
    check_task(kvassay_task)


@pytest.mark.long
def test_thousands_of_other_sequences(pytestconfig: pytest.Config) -> None:
    for target in request_of(pytestconfig).targets:
        machine = run(target.backend, target.variant, 1500, 50, same=False)
        assert machine.compared > 10_000
