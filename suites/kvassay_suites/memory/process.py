"""What this process holds, by three kinds of evidence that no backend can influence.

traced: what Python allocated (tracemalloc; numpy reports its arrays there). malloc: what the C
library has handed out and not got back. private: memory that belongs to this process alone, as
the kernel counts it, however it was obtained. The first two are exact to a few bytes; only the
third sees everything.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_KIB: Final = 1024
_PR_SET_THP_DISABLE: Final = 41
#: The environment of a process whose memory is measured: Python's small objects come from the C
#: library too, and freed blocks are not kept as if they were in use.
ENVIRONMENT: Final = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
#: Fixed bytes of an evidence's noise, and its share of what is held: headers and rounding of the
#: allocator, Python objects around the data, numpy's cache of freed blocks, partly used memory
#: pages. Measured in docs/memory.md.
TOLERANCES: Final = {
    "traced": (64 * _KIB, 0.02),
    "malloc": (256 * _KIB, 0.02),
    "private": (512 * _KIB, 0.05),
}
#: The same for the growth over many equal sessions, when every cache of the process is full.
SESSION_TOLERANCES: Final = {"traced": 32 * _KIB, "malloc": 32 * _KIB, "private": 512 * _KIB}


def tolerance(kind: str, billed: int) -> int:
    """Bytes by which this evidence may exceed a bill of that size."""
    fixed, share = TOLERANCES[kind]
    return fixed + int(share * billed)


def excess(held: dict[str, int], billed: int) -> int:
    """Bytes held beyond the bill and the tolerance, by the evidence that shows most; at least 0."""
    return max(0, *(bytes_ - billed - tolerance(kind, billed) for kind, bytes_ in held.items()))


def growth(held: dict[str, int]) -> int:
    """Bytes that sessions left behind, beyond the tolerance; at least 0."""
    return max(0, *(bytes_ - SESSION_TOLERANCES[kind] for kind, bytes_ in held.items()))


@dataclass(frozen=True)
class Peak:
    """Highest bytes in a phase, above the baseline and above its start.

    None where Python did not trace, or where the system has no resident peak that can be reset.
    """

    traced: int | None
    traced_rise: int | None
    resident: int | None
    resident_rise: int | None


class Probe:
    """Bytes above a baseline: that of the moment it was made, all else being warm by then."""

    def __init__(self, trace: bool = False) -> None:
        """Tracing makes small operations three times slower: it is done where `trace` asks for it,
        and where the system lacks the other exact evidence."""
        _without_huge_pages()
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        if trace or _malloc_in_use(self._libc) is None or not _forget_resident_peak():
            tracemalloc.start()
        self._base: dict[str, int] = {}
        self.held()  # the first reading allocates what later ones use
        self._base = self.held()
        self._resident = _size("status", "VmRSS")

    def stop(self) -> None:
        """Trace no more: what follows runs at full speed."""
        tracemalloc.stop()

    def held(self) -> dict[str, int]:
        """Bytes held now above the baseline, by kind of evidence, garbage collected.

        Python's cache of attributes keeps up to 4096 names, those too that C code makes anew for
        each look-up: 250 KB that belong to no cache of a backend.
        """
        gc.collect()
        sys._clear_type_cache()
        if self._libc is not None and hasattr(self._libc, "malloc_trim"):
            self._libc.malloc_trim(0)
        own = tracemalloc.get_tracemalloc_memory()
        now = {"private": _private() - own}
        if tracemalloc.is_tracing():
            now["traced"] = tracemalloc.get_traced_memory()[0]
        handed_out = _malloc_in_use(self._libc)
        if handed_out is not None:
            now["malloc"] = handed_out - own
        return {kind: bytes_ - self._base.get(kind, 0) for kind, bytes_ in now.items()}

    def peak_of(self, work: Callable[[], object]) -> Peak:
        """The peak while `work` runs."""
        self.held()
        traced, resident = tracemalloc.get_traced_memory()[0], _size("status", "VmRSS")
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        forgotten = _forget_resident_peak()
        work()
        top, high = tracemalloc.get_traced_memory()[1], _size("status", "VmHWM")
        base = self._base.get("traced")
        above, rise = (None, None) if base is None else (top - base, top - traced)
        if not forgotten or self._resident is None or resident is None or high is None:
            return Peak(above, rise, None, None)
        return Peak(above, rise, high - self._resident, high - resident)


class _MallInfo2(ctypes.Structure):
    _fields_ = (
        *(("arena", ctypes.c_size_t), ("ordblks", ctypes.c_size_t), ("smblks", ctypes.c_size_t)),
        *(("hblks", ctypes.c_size_t), ("hblkhd", ctypes.c_size_t), ("usmblks", ctypes.c_size_t)),
        *(("fsmblks", ctypes.c_size_t), ("uordblks", ctypes.c_size_t)),
        *(("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)),
    )


def _malloc_in_use(libc: ctypes.CDLL | None) -> int | None:
    """Bytes in use in all heaps and mapped blocks, None where the C library is not glibc."""
    if libc is None or not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _MallInfo2
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def _without_huge_pages() -> None:
    """Count memory in small pages: huge ones are touched as a whole for a single byte."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def _private() -> int:
    """Bytes written by this process alone, swapped out ones too.

    Pages of shared libraries are not among them: whether those count as its own depends on what
    other processes do.
    """
    dirty, swapped = (_size("smaps_rollup", field) for field in ("Private_Dirty", "Swap"))
    if dirty is None or swapped is None:
        return int(psutil.Process().memory_full_info().uss)
    return dirty + swapped


def _size(file: str, field: str) -> int | None:
    """A size of a file in /proc/self in bytes, None where there is none."""
    try:
        text = Path("/proc/self", file).read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * _KIB
    return None


def _forget_resident_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True
