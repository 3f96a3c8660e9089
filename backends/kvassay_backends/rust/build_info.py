"""Says which sources the Rust library was built from, and why it is not there if it is not.

This module imports nothing of the package: the build hook loads it by its path.
"""

import hashlib
import json
from pathlib import Path
from typing import TypedDict, cast

LIBRARY_DIR = Path(__file__).resolve().with_name("_lib")
RECORD_NAME = "build.json"
_BACKENDS = Path(__file__).resolve().parents[2]
SOURCE_DIR = _BACKENDS / "src" / "rust"
RECIPE = _BACKENDS / "rust_build.py"
BUILD = "python backends/hatch_build.py rust"


class RustRecord(TypedDict, total=False):
    """The content of `_lib/build.json`: all but `reason`, or of a library that is not there
    `reason` and, where there were sources, their digest."""

    build_id: str
    """SHA-256 over sources digest, target and cargo; also compiled into the library."""
    sources_digest: str
    target: str
    """Name of the machine."""
    cargo: str
    """What `cargo --version` says."""
    library: str
    """File name of the library in `_lib`."""
    reason: str
    """Why it was not built."""


def source_digest() -> str | None:
    """SHA-256 (hex) of the recipe, the manifests and every Rust file, each with its path and
    length, or None where there are no sources."""
    if not (SOURCE_DIR / "Cargo.toml").is_file() or not RECIPE.is_file():
        return None
    named = {"": RECIPE}
    for pattern in ("Cargo.*", "*/Cargo.toml", "*/*.rs", "*/src/**/*.rs"):
        for path in SOURCE_DIR.glob(pattern):
            named[path.relative_to(SOURCE_DIR).as_posix()] = path
    digest = hashlib.sha256()
    for name in sorted(named):
        content = named[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def build_record() -> RustRecord | None:
    """What the build wrote, or None if there was none."""
    path = LIBRARY_DIR / RECORD_NAME
    if not path.is_file():
        return None
    return cast(RustRecord, json.loads(path.read_text(encoding="utf-8")))


def not_built_reason() -> str:
    """Why there is no library of the present sources and how to mend it, or ""."""
    digest, record = source_digest(), build_record()
    if record is None:
        return f"run: {BUILD}"
    mend = f"; run: {BUILD}" if digest else ""  # a wheel has no sources to build
    if "reason" in record:
        return record["reason"] + mend
    if digest not in (None, record["sources_digest"]):
        return f"built from other sources{mend}"
    return ""
