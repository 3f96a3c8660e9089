"""Says which sources the native library was built from, and whether it is out of date.

The build writes `_lib/build.json` beside the library. In a checkout the digest of the sources can
be computed again and compared; in an installed wheel there are no sources and nothing to compare.
This module imports nothing of the package: the build hook loads it by its path.
"""

import hashlib
import json
from pathlib import Path
from typing import TypedDict, cast

LIBRARY_DIR = Path(__file__).resolve().with_name("_lib")
HEADER_NAME = "kvassay.h"
BLOCK_HEADER_NAME = "kvassay_block.h"
SHARE_HEADER_NAME = "kvassay_share.h"
RETRIEVAL_HEADER_NAME = "kvassay_retrieval.h"
BOUNDED_HEADER_NAME = "kvassay_bounded.h"
RECORD_NAME = "build.json"

#: Folders below the sources that each build takes, and the kernels there that only the other has.
_SHARED = ("include", "core", "kernels", "retrieval")
NATIVE_FOLDERS = (*_SHARED, "block", "linear", "ort")
WASM_FOLDERS = (*_SHARED, "decoder", "wasm")
WASM_KERNELS = ("simd128", "relaxed")

_BACKENDS = Path(__file__).resolve().parents[2]
SOURCE_DIR = _BACKENDS / "src"
RECIPE = _BACKENDS / "build"
ISAS = Path(__file__).with_name("isas.py")


class BuildRecord(TypedDict):
    """The content of `_lib/build.json`."""

    build_id: str
    """SHA-256 over sources digest, target, flags and compiler; also compiled into the library."""
    sources_digest: str
    """What `source_digest()` was when the library was compiled."""
    target: str
    """The compiler's name of the machine, for example `x86_64-linux-gnu.2.17`."""
    zig: str
    """Version of the zig compiler."""
    flags: list[str]
    """Flags common to every file."""
    files: dict[str, list[str]]
    """Each compiled file, relative to the source folder, with its extra flags."""
    library: str
    """File name of the library in `_lib`."""


def source_digest(
    folders: tuple[str, ...] = NATIVE_FOLDERS, left_out: tuple[str, ...] = WASM_KERNELS
) -> str | None:
    """SHA-256 (hex) of everything a build is made from, or None where there are no sources.

    It covers the build recipe (every file of `build`, and the instruction sets) and the C files of
    `folders` but those of the instruction sets `left_out`: for each file its path below the source
    folder, its length and its bytes, in the order of the paths.
    """
    if not (SOURCE_DIR / "include" / HEADER_NAME).is_file() or not RECIPE.is_dir():
        return None
    named = {f"build/{path.name}": path for path in (*RECIPE.glob("*.py"), ISAS)}
    for folder in folders:
        for path in (SOURCE_DIR / folder).rglob("*.[ch]"):
            if path.stem.partition("_")[0] not in left_out:
                named[path.relative_to(SOURCE_DIR).as_posix()] = path
    digest = hashlib.sha256()
    for name in sorted(named):
        content = named[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def build_record() -> BuildRecord | None:
    """What the build wrote about the library, or None if the library was never built."""
    path = LIBRARY_DIR / RECORD_NAME
    if not path.is_file():
        return None
    return cast(BuildRecord, json.loads(path.read_text(encoding="utf-8")))


def stale_reason() -> str | None:
    """Why the library does not match its sources and how to mend it; None if it matches.

    An installed wheel has no sources to differ from, so its answer is None.
    """
    digest = source_digest()
    if digest is None:
        return None
    record = build_record()
    if record is None:
        return "the native library is not built; run: python backends/hatch_build.py"
    if record["sources_digest"] != digest:
        return (
            f"the native library was built from other sources (digest "
            f"{record['sources_digest'][:12]}, now {digest[:12]}); "
            "run: python backends/hatch_build.py"
        )
    return None
