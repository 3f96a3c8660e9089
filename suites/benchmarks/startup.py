"""What a user waits for before anything happens, and what a page loads."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import kvassay_backends


def run(*arguments: str) -> None:
    """A Python process to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


class Start:
    """Whole processes; `time_numpy` beside them is the share that is not ours."""

    number = 1
    repeat = (5, 20, 20.0)

    def time_numpy(self) -> None:
        """Importing numpy."""
        run("-c", "import numpy")

    def time_import(self) -> None:
        """Importing kvassay."""
        run("-c", "import kvassay")

    def time_help(self) -> None:
        """`kvassay --help`."""
        run("-m", "kvassay", "--help")


class Modules:
    """Bytes of a WebAssembly module as a browser loads it, packed by gzip."""

    params: ClassVar = [["scalar", "simd128", "relaxed"]]
    param_names: ClassVar = ["variant"]

    def track_gzip(self, variant: str) -> int:
        """One module."""
        folder = Path(kvassay_backends.__file__).parent / "wasm" / "_lib"
        return len(gzip.compress((folder / f"kvassay-{variant}.wasm").read_bytes(), mtime=0))

    track_gzip.unit = "bytes"  # type: ignore[attr-defined]
