"""Builds the Rust library with cargo, where cargo is; says in its record why not, elsewhere.

`hatch_build.py` calls it in every build of a wheel and every install. It never makes those fail:
what cannot be built here is "not built", with the reason.
"""

import hashlib
import json
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BACKENDS = Path(__file__).resolve().parents[1]
OUTPUT = BACKENDS / "kvassay_backends" / "rust" / "_lib"
BUILD_INFO = runpy.run_path(str(OUTPUT.with_name("build_info.py")))
SOURCES: Path = BUILD_INFO["SOURCE_DIR"]
RECORD: str = BUILD_INFO["RECORD_NAME"]
NO_CARGO = "cargo not found"

# File name that cargo gives the library, by how the name of the machine ends.
_NAMES = {
    "windows-gnu": "kvassay_rust.dll",
    "macos.11.0": "libkvassay_rust.dylib",
    "linux-gnu.2.17": "libkvassay_rust.so",
}


def build(triple: str, here: bool, output: Path = OUTPUT) -> dict[str, str]:
    """Build for this machine, zig's name of which is `triple`; `here` False: it is another one.

    Puts the library and its record (RustRecord of build_info.py), or a record with the reason
    alone, into `output`, and returns the record.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        record = _try(triple, here, made)
        (made / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for library in _NAMES.values():
            (output / library).unlink(missing_ok=True)
        for path in made.iterdir():
            os.replace(path, output / path.name)
    return record


def _try(triple: str, here: bool, made: Path) -> dict[str, str]:
    digest = BUILD_INFO["source_digest"]()
    if digest is None:
        return {"reason": f"no sources in {SOURCES}"}
    cargo = shutil.which("cargo")
    if not here:
        return {"sources_digest": digest, "reason": f"{triple} is another machine"}
    if cargo is None:
        return {"sources_digest": digest, "reason": NO_CARGO}
    library = next(name for end, name in _NAMES.items() if triple.endswith(end))
    version = subprocess.run([cargo, "--version"], capture_output=True, text=True).stdout.strip()
    record = {"sources_digest": digest, "target": triple, "cargo": version, "library": library}
    identity = json.dumps(record, sort_keys=True).encode()
    build_id = hashlib.sha256(identity).hexdigest()
    failed = _cargo(cargo, triple, build_id, made / "linker")
    if failed:
        return {"sources_digest": digest, "reason": failed}
    shutil.copyfile(_target() / "release" / library, made / library)
    return {"build_id": build_id, **record}


def _cargo(cargo: str, triple: str, build_id: str, linker: Path) -> str:
    """Build the shared library of this machine; why it failed, or ""."""
    flags = ""
    if "linux" in triple:
        # The system's linker would ask for its own C library, newer than the wheel's tag allows.
        zig = shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", triple])
        linker.write_text(f'#!/bin/sh\nexec {zig} "$@"\n', encoding="utf-8")
        linker.chmod(0o700)
        flags = f"-C linker={linker}"
    failed = run_cargo("build", build_id, cargo=cargo, flags=flags)
    linker.unlink(missing_ok=True)
    return failed


def run_cargo(
    command: str, build_id: str, *options: str, cargo: str = "cargo", flags: str = ""
) -> str:
    """Run `cargo build` or `cargo rustc` on the library, offline; why it failed, or ""."""
    # Whatever RUSTFLAGS says is no part of the build id.
    environment = {**os.environ, "KVASSAY_BUILD_ID": build_id, "RUSTFLAGS": flags}
    line = [cargo, command, "--release", "--offline", "--locked", "-p", "kvassay-capi"]
    line += ["--manifest-path", str(SOURCES / "Cargo.toml"), "--target-dir", str(_target())]
    done = subprocess.run([*line, *options], env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    errors = [text for text in done.stderr.splitlines() if text.startswith("error")]
    return f"cargo {command} failed: {(errors or [f'exit status {done.returncode}'])[0]}"


def _target() -> Path:
    """Where cargo works; kept between builds."""
    return SOURCES / "target"
