"""Standard output and error of the script: a verdict's exit status does not depend on who reads."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class _Outlet(io.FileIO):
    """A stream that is written to although nobody reads it any more (`kvassay list | head -1`).

    Other failures, such as a full disk, are raised once: at the end Python flushes again.
    """

    _failed = False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._failed:
            return size
        try:
            return super().write(data)
        except BrokenPipeError:
            return size
        except OSError:
            self._failed = True
            raise


def open_streams() -> None:
    """Make standard streams that a verdict can be written to, whoever closed them.

    A closed descriptor would go to the next file that is opened, which would then get what is
    printed: it leads nowhere instead.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least that is free, which is this one
    sys.stdout = _opened(sys.stdout, 1)
    sys.stderr = _opened(sys.stderr, 2)


def _opened(old: TextIO | None, number: int) -> TextIO:
    """The stream of a descriptor, in the encoding and with the manners of the one it replaces."""
    if old is not None:
        old.flush()
    by_line = number == 2 or (old is not None and bool(old.line_buffering))
    return io.TextIOWrapper(
        io.BufferedWriter(_Outlet(number, "wb", closefd=False)),
        encoding=old.encoding if old is not None else "utf-8",
        errors=old.errors if old is not None else "backslashreplace",
        line_buffering=by_line,
    )
