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
RECIPE = _BACKENDS / "build" / "rust.py"
BUILD = "python backends/hatch_build.py rust"
#: The same library for aarch64, in the server that an emulator runs.
SERVER_DIR = LIBRARY_DIR / "aarch64"
SERVER_RECIPE = RECIPE.with_name("rust_server.py")
BUILD_SERVER = "python backends/build/rust_server.py"


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
    rustc: str
    """What `rustc --version` says; of the server alone."""
    library: str
    """File name of the library in `_lib`."""
    reason: str
    """Why it was not built."""


def source_digest() -> str | None:
    """SHA-256 (hex) of the recipe, the manifests and every Rust file, each with its path and
    length, or None where there are no sources."""
    return _digest({"": RECIPE})


def server_digest() -> str | None:
    """The same with what the server has beside the library."""
    server = (SERVER_RECIPE, SOURCE_DIR / "musl.c", SOURCE_DIR.with_name("server") / "serve.c")
    header = SOURCE_DIR.with_name("include") / "kvassay.h"
    return _digest({"": RECIPE} | {f"server/{path.name}": path for path in (*server, header)})


def _digest(named: dict[str, Path]) -> str | None:
    if not (SOURCE_DIR / "Cargo.toml").is_file() or not RECIPE.is_file():
        return None
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
    return _record(LIBRARY_DIR)


def server_record() -> RustRecord | None:
    """What the build of the server wrote, or None if there was none."""
    return _record(SERVER_DIR)


def _record(folder: Path) -> RustRecord | None:
    path = folder / RECORD_NAME
    if not path.is_file():
        return None
    return cast(RustRecord, json.loads(path.read_text(encoding="utf-8")))


def not_built_reason() -> str:
    """Why there is no library of the present sources and how to mend it, or ""."""
    return _reason(build_record(), source_digest(), BUILD)


def server_not_built_reason() -> str:
    """Likewise of the server."""
    digest = server_digest()
    if digest is None:
        return "wheels hold no code for other machines; build it in a checkout"
    return _reason(server_record(), digest, BUILD_SERVER)


def _reason(record: RustRecord | None, digest: str | None, build: str) -> str:
    if record is None:
        return f"run: {build}"
    mend = f"; run: {build}" if digest else ""  # a wheel has no sources to build
    if "reason" in record:
        return record["reason"] + mend
    if digest not in (None, record["sources_digest"]):
        return f"built from other sources{mend}"
    return ""
