"""Says which sources the server was built from, and whether it is out of date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, cast

from ..native.build_info import NATIVE_FOLDERS, RECORD_NAME, BuildRecord, source_digest

LIBRARY_DIR: Final = Path(__file__).resolve().with_name("_lib")
FOLDERS: Final = (*NATIVE_FOLDERS, "server")
BUILD: Final = "python backends/build/cross.py emulated"


def build_record() -> BuildRecord | None:
    """What the build wrote about the server, or None if it was never built."""
    path = LIBRARY_DIR / RECORD_NAME
    if not path.is_file():
        return None
    return cast(BuildRecord, json.loads(path.read_text(encoding="utf-8")))


def not_built_reason() -> str:
    """Why there is no server of the present sources and how to mend it, or ""."""
    digest, record = source_digest(FOLDERS), build_record()
    if digest is None:
        return "wheels hold no code for other machines; build it in a checkout"
    if record is None:
        return f"run: {BUILD}"
    if record["sources_digest"] != digest:
        return f"built from other sources; run: {BUILD}"
    return ""
