"""Appends that something stops in the middle, or as they end: the cache is as it was."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from sharing import give, load, rows, spec_of, targets

from kvassay import Cache

TARGETS = targets()
A = list(range(90))
SPEC = spec_of()


class Stop(Exception):
    """What the signal handler raises."""


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """SIGALRM raises Stop while this lasts."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer on this system")
@pytest.mark.parametrize("target", TARGETS)
def test_a_signal_at_any_moment(target: str) -> None:
    cache = give(load(target).prepare(SPEC), A)
    k, v = (rows(SPEC, A, stream) for stream in (0, 1))
    stopped = 0
    with alarm():
        for microseconds in [*range(1, 120, 2), *range(120, 400, 20)] * 3:
            before = cache.dump()
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * microseconds)
                cache.append(0, k, v)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                stopped += 1
                grown = cache.lengths[0] - 90
                # Past the end of the append the exception is the caller's own.
                assert grown == 0 or (grown == 90 and _raised_here())
                if grown == 0:
                    assert cache.dump() == before
            if cache.lengths[0] > 90:
                cache.reset()
                give(cache, A)
    assert stopped > 5
    assert cache.dump() == give(load(target).prepare(SPEC), A).dump()


def _raised_here() -> bool:
    """Whether the exception being handled came up outside of the cache."""
    traceback = sys.exc_info()[2]
    inside = False
    while traceback is not None:
        inside |= "append" in traceback.tb_frame.f_code.co_name
        traceback = traceback.tb_next
    return not inside


@pytest.mark.parametrize("length", [90, 20, 5])
@pytest.mark.parametrize("count", [1, 6, 7, 64])
def test_as_the_library_returns(monkeypatch: pytest.MonkeyPatch, length: int, count: int) -> None:
    cache: Any = give(load("native.scalar").prepare(SPEC), A[:length])
    k, v = (rows(SPEC, A[:count], stream) for stream in (0, 1))
    before, held = cache.dump(), cache.nbytes
    call = cache._call

    def interrupted(function: Any, *arguments: Any) -> None:
        call(function, *arguments)
        if function is cache._lib.kv_cache_append:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(cache, "_call", interrupted)
        with pytest.raises(Stop):
            cache.append(1, k, v)
    assert cache.lengths == (length, length)
    assert cache.dump() == before
    assert {**cache.nbytes, "reserved": 0} == {**held, "reserved": 0}
    cache.append(1, k, v)
    cache.append(0, k, v)
    assert cache.dump() == give(load("native.scalar").prepare(SPEC), A[:length] + A[:count]).dump()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [60, 0])
def test_an_exception_at_every_line(target: str, length: int) -> None:
    backend = load(target)
    cache = give(backend.prepare(SPEC), A[:length])
    more = A[:24]
    k, v = (rows(SPEC, more, stream) for stream in (0, 1))
    before, stops = cache.dump(), 0
    while _stopped(cache, k, v, stops):
        stops += 1
        assert cache.lengths == (length, length), stops
        if stops % 5 == 0:
            assert cache.dump() == before, stops
    assert stops > 20
    assert cache.lengths == (length + 24, length)
    cache.append(1, k, v)
    assert cache.dump() == give(backend.prepare(SPEC), A[:length] + more).dump()


def _stopped(cache: Cache, k: Any, v: Any, line: int) -> bool:
    """Whether an append has so many lines of a backend's code: MemoryError comes up at that one."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "kvassay_backends" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise MemoryError
        return trace

    sys.settrace(trace)
    try:
        cache.append(0, k, v)
    except MemoryError:
        return True
    finally:
        sys.settrace(None)
    return False
