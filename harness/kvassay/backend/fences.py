"""Fences around the memory that foreign code is given, so that what it writes outside is seen.

A backend that calls somebody else's code takes buffers from `active()` where that is not None, and
has each call watched. A buffer lies between sentinels, which are compared after every call, and the
sentinels between pages that cannot be touched at all:

    guard page | sentinels | buffer | at least `gap` sentinels | guard page

With a gap of 0 the buffer ends at the guard page, so that to read beyond it is seen as well: by the
signal that kills the process (`tell_deaths`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import BoundsError

Bytes = NDArray[np.uint8]

PAGE: Final = mmap.PAGESIZE
#: Sentinels in front of a buffer, at least.
MARGIN: Final = 256
#: What a process ends with in which a guard page was touched.
TOUCHED: Final = 86
#: None of them 0 or 255, and no copy of them at another place alike.
_SENTINELS: Final = (np.arange(1 << 17) * 89 % 251 + 2).astype(np.uint8)

_active: ContextVar[Fences | None] = ContextVar("fences", default=None)
#: The fences that buffers are to be taken from; None where nobody looks. Asked in every call.
active: Final = _active.get


@contextmanager
def fenced(gap: int = PAGE) -> Iterator[Fences]:
    """Within, what backends hand to foreign code is fenced, `gap` bytes before a guard page.

    Raises BoundsError at the end for what was found when memory was given back.
    """
    fences = Fences(gap)
    token = _active.set(fences)
    try:
        yield fences
    finally:
        _active.reset(token)
    fences.check("the last call")


def sentinels(size: int) -> Bytes:
    """What so many bytes of a fence hold; at most 131072."""
    return _SENTINELS[:size]


def trespass(what: str, size: int, front: Bytes, behind: Bytes) -> str:
    """What changed among the sentinels around a buffer, and how far away; "" if nothing."""
    told = []
    before = np.flatnonzero(front != sentinels(len(front)))
    if len(before):
        told.append(_told(len(before), len(front) - int(before[0]), "in front of its start"))
    after = np.flatnonzero(behind != sentinels(len(behind)))
    if len(after):
        told.append(_told(len(after), int(after[-1]) + 1, "behind its end"))
    return f"{what} ({size} bytes): {', '.join(told)}" if told else ""


def _told(count: int, farthest: int, side: str) -> str:
    return f"wrote {count} byte{'s' * (count > 1)} {side}, the farthest {farthest} away"


@dataclass
class _Block:
    """A buffer in a mapping of its own, which goes with the last view of it."""

    what: str
    start: int
    """Of the buffer in its mapping."""
    size: int
    mapping: weakref.ref[Bytes]
    #: What it must go on holding, if it was given to be read.
    constant: bytes | None = None

    def changed(self) -> str:
        """What is wrong around it or in it, said once; "" if nothing."""
        whole = self.mapping()
        if whole is None:
            return ""
        end = self.start + self.size
        front, behind = whole[PAGE : self.start], whole[end : len(whole) - PAGE]
        told = trespass(self.what, self.size, front, behind)
        if told:
            front[:], behind[:] = sentinels(len(front)), sentinels(len(behind))
        elif self.constant is not None and whole[self.start : end].tobytes() != self.constant:
            self.constant = whole[self.start : end].tobytes()
            told = f"{self.what} ({self.size} bytes): changed, though it is there to be read"
        return told


class Fences:
    """The buffers that foreign code has been given."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        #: Buffers handed out and calls watched so far.
        self.handed = self.watched = 0
        self._calling = "no call"
        self._live: dict[int, _Block] = {}
        self._held: dict[int, Bytes] = {}
        self._found: list[str] = []

    def take(self, size: int, what: str, alignment: int = 1) -> Bytes:
        """A buffer to write to. It is watched as long as it, or a view of it, is alive."""
        behind = -(-(self.gap + size) // alignment) * alignment - size
        inner = -(-(MARGIN + size + behind) // PAGE) * PAGE
        whole = np.frombuffer(mmap.mmap(-1, inner + 2 * PAGE), np.uint8)
        start = PAGE + inner - behind - size
        whole[PAGE:start] = sentinels(start - PAGE)
        whole[start + size : PAGE + inner] = sentinels(behind)
        address = whole.ctypes.data
        _forbid(address)
        _forbid(address + PAGE + inner)
        self._live[address] = _Block(what, start, size, weakref.ref(whole))
        weakref.finalize(whole, self._live.pop, address, None).atexit = False
        self.handed += 1
        return whole[start : start + size]

    def give(self, data: Bytes, what: str, alignment: int = 1) -> Bytes:
        """A copy of `data` to be read, and not to be changed."""
        room = self.take(data.size, what, alignment)
        room[:] = data
        self.freeze(room)
        return room

    def freeze(self, room: Bytes) -> None:
        """From now on a buffer that was taken is to be read only."""
        assert room.base is not None
        self._live[room.base.ctypes.data].constant = room.tobytes()

    def hold(self, size: int, what: str, alignment: int) -> int:
        """The address of memory that foreign code asked for, until it gives it back."""
        room = self.take(size, what, alignment)
        self._held[room.ctypes.data] = room
        return int(room.ctypes.data)

    def release(self, address: int, size: int) -> None:
        """Take back what `hold` gave; what is wrong with it is told by the next check."""
        room = self._held.pop(address, None)
        if room is None or room.size != size:
            had = "nothing was given there" if room is None else f"{room.size} bytes were given"
            self._found.append(f"gave back {size} bytes where {had}")
        if room is not None:
            assert room.base is not None
            self._found += filter(None, [self._live[room.base.ctypes.data].changed()])

    def watch(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call; BoundsError if it wrote outside of what foreign code was given."""
        self._calling = call
        self.watched += 1
        result = function(*arguments)
        self.check(call)
        return result

    def check(self, call: str) -> None:
        """BoundsError, once for each place, if something outside was written."""
        found, self._found = self._found, []
        found += filter(None, [block.changed() for block in list(self._live.values())])
        if found:
            raise BoundsError(f"{call}: {'; '.join(found)}")

    def where(self, address: int) -> str:
        """Which call was running, and which buffer an address that was touched is next to."""
        for start, block in list(self._live.items()):
            whole = block.mapping()
            if whole is None or not start <= address < start + len(whole):
                continue
            first, end = start + block.start, start + block.start + block.size
            away = first - address if address < first else address - end + 1
            side = "in front of its start" if address < first else "behind its end"
            buffer = f"{block.what} ({block.size} bytes)"
            return f"{self._calling}: {buffer}: read or wrote {away} bytes away {side}"
        return f"{self._calling}: touched memory that is nobody's, at {address:#x}"


@cache
def _protect() -> Callable[..., int] | None:
    """The system's mprotect; where there is none, sentinels stand alone."""
    if sys.platform == "win32":
        return None
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def _forbid(address: int) -> None:
    """Make a page one that nothing may touch."""
    protect = _protect()
    if protect is not None and protect(address, PAGE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect of a guard page")


_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SA_SIGINFO: Final = 4
#: Of si_addr in a siginfo_t of 64-bit Linux.
_SI_ADDR: Final = 16


class _SigAction(ctypes.Structure):
    """The C library's struct sigaction on 64-bit Linux."""

    _fields_ = (
        ("handler", _HANDLER),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_installed: list[object] = []


def tell_deaths() -> None:
    """From now on, where a guard page is touched, say on stderr by which call and how far away, and
    end this process with `TOUCHED`.

    Only for a process made to be lost. Elsewhere than on Linux the signal itself ends it.
    """
    if sys.platform != "linux":
        return

    def tell(_number: int, info: int, _context: int) -> None:
        address = ctypes.c_uint64.from_address(info + _SI_ADDR).value
        fences = active()
        told = fences.where(address) if fences else "a signal, with nothing fenced"
        os.write(2, f"{told}\n".encode())
        os._exit(TOUCHED)

    action = _SigAction(handler=_HANDLER(tell), flags=_SA_SIGINFO)
    _installed.append(action)  # the system keeps its address
    for number in (signal.SIGSEGV, signal.SIGBUS):
        if ctypes.CDLL(None).sigaction(int(number), ctypes.byref(action), None) != 0:
            raise OSError("sigaction")
