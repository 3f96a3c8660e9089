"""Backends that `kvassay new-backend` wrote and their own build files built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvassay.skeletons.write import write_skeleton


def make_skeleton(folder: Path, kind: str) -> str:
    """Write and build a backend of a kind; the name by which the registry finds it.

    One in Rust is skipped where there is no cargo, and says so.
    """
    name = f"mine-{kind}"
    if kind == "rust" and shutil.which("cargo") is None:
        pytest.skip("not built: cargo not found, so no backend in Rust was gated")
    write_skeleton(name, kind, folder)
    if kind in ("python", "foreign"):
        return f"mine_{kind}:Mine{kind.capitalize()}"
    command = [sys.executable, str(folder / "build.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    scheme = "wasm" if kind == "wasm" else "library"
    return f"{scheme}:{done.stdout.strip()}"
