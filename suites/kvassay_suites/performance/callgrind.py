"""Counts machine instructions with valgrind's callgrind: the same number in every run of a build.

The program that is counted calls `os.getppid` wherever a count begins or ends; callgrind writes
what it counted up to there each time the function returns. So no symbol of a backend is needed,
and any library can be counted. Nothing but the standard library is used: the history of benchmarks
runs this file against commits that lack it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_MARK: Final = "getppid"
_SECONDS: Final = 900.0
_LAST_WORDS: Final = 500
#: The order of a dictionary of texts, and so the work to look one up, must not differ by run.
_FIXED: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class NotCountedError(Exception):
    """No count, and why."""


def why_not() -> str:
    """Why nothing can be counted on this machine; "" if it can."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return "valgrind runs Python on Linux alone"
    return "" if shutil.which("valgrind") else "valgrind is not installed"


def count(program: Path, arguments: Mapping[str, Any]) -> tuple[list[int], Any]:
    """Instructions between each two marks of a program, and what it printed, read as JSON.

    The program gets `arguments` as JSON, its only argument. Raises NotCountedError with the reason.
    """
    if reason := why_not():
        raise NotCountedError(reason)
    with tempfile.TemporaryDirectory(prefix="kvassay-callgrind-") as folder:
        out = Path(folder) / "out"
        tool = ("valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}")
        try:
            done = subprocess.run(
                [*tool, f"--dump-after={_MARK}", sys.executable, program, json.dumps(arguments)],
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, **_FIXED, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotCountedError(f"valgrind took longer than {_SECONDS:g} s") from None
        if done.returncode != 0:
            words = done.stderr.strip()[-_LAST_WORDS:]
            raise NotCountedError(f"under valgrind: exit status {done.returncode}: {words}")
        return _between(out), json.loads(done.stdout)


def _between(out: Path) -> list[int]:
    """Totals of the profiles that begin at one mark and end at the next."""
    found = []
    for number in range(1, sum(1 for _ in out.parent.glob(f"{out.name}.*")) + 1):
        text = out.with_name(f"{out.name}.{number}").read_text(encoding="utf-8", errors="replace")
        total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        if total is None or _MARK not in text:
            raise NotCountedError(f"callgrind's profile {number} has no total at a mark")
        found.append(int(total[1]))
    return found[1:]  # before the first mark the program made ready
