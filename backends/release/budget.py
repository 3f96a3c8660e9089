"""How large the files of a release may be: `budget.toml`, with its reasons."""

import gzip
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

LIMITS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("budget.toml").read_text(encoding="utf-8")
)


def download(path: Path) -> int:
    """Bytes that somebody loads: of a module, which servers pack, its gzip."""
    content = path.read_bytes()
    return len(gzip.compress(content, mtime=0) if path.suffix == ".wasm" else content)


def excess(path: Path) -> str:
    """What is wrong with a file's size; empty where nothing is."""
    for pattern, limit in LIMITS.items():
        if fnmatchcase(path.name, pattern):
            kib = download(path) / 1024
            if kib <= limit["kib"]:
                return ""
            return f"{path.name}: {kib:,.0f} KiB, budget {limit['kib']:,} KiB ({limit['why']})"
    return f"{path.name}: no size in budget.toml"
