"""Says which sources the WebAssembly modules were built from, and whether they are out of date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, TypedDict, cast

from ..native.build_info import RECORD_NAME, WASM_FOLDERS, source_digest

LIBRARY_DIR: Final = Path(__file__).resolve().with_name("_lib")


class ModuleRecord(TypedDict):
    """One module of `_lib/build.json`."""

    file: str
    """File name in `_lib`."""
    sha256: str
    """Of the file."""
    bytes: int
    files: dict[str, list[str]]
    """Each compiled file, relative to the source folder, with its extra flags."""


class WasmRecord(TypedDict):
    """The content of `_lib/build.json`."""

    build_id: str
    """SHA-256 over sources digest, target, flags and compiler; compiled into every module."""
    sources_digest: str
    target: str
    zig: str
    flags: list[str]
    link: list[str]
    modules: dict[str, ModuleRecord]
    """By variant, from the most portable to the fastest."""


def build_record() -> WasmRecord | None:
    """What the build wrote about the modules, or None if they were never built."""
    path = LIBRARY_DIR / RECORD_NAME
    if not path.is_file():
        return None
    return cast(WasmRecord, json.loads(path.read_text(encoding="utf-8")))


def stale_reason() -> str | None:
    """Why the modules do not match their sources and how to mend it; None if they match.

    An installed wheel has no sources to differ from, so its answer is None.
    """
    digest = source_digest(WASM_FOLDERS, ())
    if digest is None:
        return None
    record = build_record()
    if record is None:
        return "the WebAssembly modules are not built; run: python backends/hatch_build.py"
    if record["sources_digest"] != digest:
        return (
            f"the WebAssembly modules were built from other sources (digest "
            f"{record['sources_digest'][:12]}, now {digest[:12]}); "
            "run: python backends/hatch_build.py"
        )
    return None
