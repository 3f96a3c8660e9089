"""Builds the Rust library for aarch64 into the server that an emulator runs.

Unless it is up to date. It needs a rustc (RUSTC, else the one on the path) that has the standard
library of TRIPLE, and no other tool of aarch64: zig links. Where something is missing, the record
says what, and the variants are not built; that is no failure.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import recipe
import rust
from zig import zig

BUILD_INFO = rust.BUILD_INFO
OUTPUT: Path = BUILD_INFO["SERVER_DIR"]
SOURCES = rust.SOURCES
TRIPLE = "aarch64-unknown-linux-gnu"
SERVER = "kvassay-serve-rust-aarch64"
NO_STD = "no aarch64 standard library for Rust"
# Static, with a C library that needs no files of the other system: an emulator then needs none.
_LINK = ("cc", "-target", "aarch64-linux-musl", "-static", "-s", "-O2", "-lunwind")


def build(output: Path = OUTPUT) -> dict[str, str]:
    """Put the server and its record (RustRecord), or a record with the reason alone, into `output`.

    Returns the record.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        record = _try(made)
        (made / recipe.RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (output / SERVER).unlink(missing_ok=True)
        for path in made.iterdir():
            os.replace(path, output / path.name)
    return record


def _try(made: Path) -> dict[str, str]:
    digest = BUILD_INFO["server_digest"]()
    if digest is None:
        return {"reason": f"no sources in {SOURCES}"}
    missing = _missing()
    if missing:
        return {"sources_digest": digest, "reason": missing}
    version = _output("cargo", "--version")
    record = {"sources_digest": digest, "target": TRIPLE, "cargo": version, "library": SERVER}
    record["rustc"] = _output(_rustc(), "--version")
    build_id = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    failed = rust.run_cargo("rustc", build_id, "--crate-type", "staticlib", "--target", TRIPLE)
    if failed:
        return {"sources_digest": digest, "reason": failed}
    library = SOURCES / "target" / TRIPLE / "release" / "libkvassay_rust.a"
    files = (recipe.SOURCES / "server" / "serve.c", SOURCES / "musl.c", library)
    include = f"-I{recipe.SOURCES / 'include'}"
    zig(*_LINK, include, "-o", str(made / SERVER), *map(str, files))
    return {"build_id": build_id, **record}


def _missing() -> str:
    """What there is not here, or ""."""
    try:
        _output("cargo", "--version")
        folder = _output(_rustc(), "--print", "target-libdir", "--target", TRIPLE)
    except FileNotFoundError as error:
        return f"{error.filename} not found"
    return "" if any(Path(folder).glob("libstd-*.rlib")) else NO_STD


def _rustc() -> str:
    return os.environ.get("RUSTC") or "rustc"


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Build, and say what came of it."""
    record = BUILD_INFO["server_record"]()
    if BUILD_INFO["server_not_built_reason"]():
        record = build()
    print(record.get("build_id") or f"Rust for aarch64 not built: {record['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
