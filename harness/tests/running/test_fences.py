"""Fenced buffers: what is written around them is told once, by call, buffer and distance."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys

import pytest

from kvassay.backend.fences import MARGIN, PAGE, TOUCHED, Bytes, Fences, active, fenced
from kvassay.errors import BoundsError


def _write(room: Bytes, away: int) -> None:
    """Change a byte so far from the buffer's start."""
    at = ctypes.c_uint8.from_address(room.ctypes.data + away)
    at.value ^= 1


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (10, "wrote 1 byte behind its end, the farthest 1 away"),
        (10 + PAGE - 1, f"wrote 1 byte behind its end, the farthest {PAGE} away"),
        (-1, "wrote 1 byte in front of its start, the farthest 1 away"),
        (-MARGIN, f"wrote 1 byte in front of its start, the farthest {MARGIN} away"),
    ],
)
def test_a_byte_outside_is_told_once(away: int, said: str) -> None:
    fences = Fences(PAGE)
    room = fences.take(10, "out")
    with pytest.raises(BoundsError) as caught:
        fences.watch("kv_attend", _write, room, away)
    assert str(caught.value) == f"kv_attend: out (10 bytes): {said}"
    fences.check("the next call")


def test_several_bytes_and_buffers_are_told_together() -> None:
    fences = Fences(PAGE)
    first, second = fences.take(8, "q"), fences.take(16, "out")
    for room, away in ((first, 8), (first, 11), (second, 20), (second, -2)):
        _write(room, away)
    with pytest.raises(BoundsError) as caught:
        fences.check("attend")
    assert str(caught.value) == (
        "attend: q (8 bytes): wrote 2 bytes behind its end, the farthest 4 away; out (16 bytes): "
        "wrote 1 byte in front of its start, the farthest 2 away, "
        "wrote 1 byte behind its end, the farthest 5 away"
    )


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4096, 100_000])
@pytest.mark.parametrize("gap", [0, 4, 20, PAGE])
@pytest.mark.parametrize("alignment", [1, 4, 64])
def test_all_of_a_buffer_may_be_used(size: int, gap: int, alignment: int) -> None:
    fences = Fences(gap)
    room = fences.take(size, "out", alignment)
    room[:] = 255
    assert room.size == size
    assert room.ctypes.data % alignment == 0
    fences.check("attend")


def test_what_is_given_to_be_read_must_stay() -> None:
    fences = Fences(PAGE)
    room = fences.give(fences.take(12, "source"), "q")
    _write(room, 3)
    with pytest.raises(BoundsError, match=r"^attend: q \(12 bytes\): changed, though"):
        fences.check("attend")
    fences.check("the next call")


def test_a_buffer_is_watched_as_long_as_a_view_of_it() -> None:
    fences = Fences(PAGE)
    view = fences.take(16, "out").view("<f4").reshape(2, 2)
    gc.collect()
    _write(view.view("u1").reshape(-1), 16)
    with pytest.raises(BoundsError, match="out"):
        fences.check("attend")
    del view
    gc.collect()
    assert not fences._live


def test_memory_that_is_given_back() -> None:
    fences = Fences(PAGE)
    address = fences.hold(40, "memory", 64)
    ctypes.c_uint8.from_address(address + 40).value ^= 1
    fences.release(address, 40)
    with pytest.raises(BoundsError, match=r"memory \(40 bytes\): wrote 1 byte behind"):
        fences.check("kv_cache_destroy")
    address = fences.hold(40, "memory", 64)
    fences.release(address, 48)
    fences.release(address + 64, 8)
    with pytest.raises(BoundsError, match=r"48 bytes where 40 bytes .*; gave back 8 .* nothing"):
        fences.check("kv_cache_destroy")


def _give_back_what_nobody_gave() -> None:
    with fenced() as fences:
        assert active() is fences
        fences.release(64, 8)


def test_what_is_found_last_is_told_at_the_end() -> None:
    with pytest.raises(BoundsError, match="the last call: gave back"):
        _give_back_what_nobody_gave()
    assert active() is None


_PROCESS = """
import ctypes
from kvassay.backend.fences import fenced, tell_deaths
tell_deaths()
with fenced(GAP) as fences:
    room = fences.take(SIZE, "out")
    fences.watch("kv_attend", lambda: ctypes.string_at(room.ctypes.data + AWAY, 1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the signal alone ends the process")
@pytest.mark.parametrize(
    ("size", "gap", "away", "said"),
    [
        (10, 0, 10, "out (10 bytes): read or wrote 1 bytes away behind its end"),
        (10, 4, 14, "out (10 bytes): read or wrote 5 bytes away behind its end"),
        (PAGE - MARGIN, 0, -MARGIN - 1, f"read or wrote {MARGIN + 1} bytes away in front"),
    ],
)
def test_who_touches_a_guard_page_is_told(size: int, gap: int, away: int, said: str) -> None:
    text = _PROCESS.replace("SIZE", str(size)).replace("GAP", str(gap)).replace("AWAY", str(away))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == TOUCHED, done.stderr
    assert done.stderr.startswith("kv_attend: ")
    assert said in done.stderr
