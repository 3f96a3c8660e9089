"""How long a file that is not trusted may be tried, before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_seconds: ContextVar[float] = ContextVar("seconds of a trial", default=60.0)


def trial_seconds() -> float:
    """Seconds that each variant of a file may take, once what tries it has started."""
    return _seconds.get()


@contextmanager
def trials_within(seconds: float) -> Iterator[None]:
    """Within, no trial takes longer than that, nor than it may anyway."""
    token = _seconds.set(min(seconds, _seconds.get()))
    try:
        yield
    finally:
        _seconds.reset(token)
