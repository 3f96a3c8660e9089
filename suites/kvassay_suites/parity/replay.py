"""Writes a failed case to a small file and replays it: `python -m kvassay_suites.parity.replay F`.

The file goes to the folder that KVASSAY_REPLAY_DIR names, else to the current one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import kvassay
from kvassay.errors import KvassayError
from kvassay.registry import REFERENCE

from .scenario import Case, run_case

FORMAT: Final = 1


def write_replay(backend: str, variant: str, case: Case, first: dict[str, Any]) -> str:
    """Write a case, cut after the operation that failed; the path written."""
    cut = {**case, "ops": list(case["ops"])[: first["op"] + 1]}
    content = {
        "replay": FORMAT,
        "backend": backend,
        "variant": variant,
        "case": cut,
        "first": first,
    }
    text = json.dumps(content, indent=1, sort_keys=True, default=str)
    short = re.sub(r"[^\w.]+", ".", backend)[-60:]  # a backend may be named by the path of a file
    name = f"{short}-{variant}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    folder = Path(os.environ.get("KVASSAY_REPLAY_DIR", "."))
    path = folder / f"{name}.replay.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return str(path)


def command(path: str) -> str:
    """The command that replays a file."""
    return f"python -m kvassay_suites.parity.replay {shlex.quote(path)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a file; exit status 1 if the values still differ, 2 if it cannot be replayed."""
    parser = argparse.ArgumentParser(description="Replay a parity case that failed.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--backend", help="another backend than the one that failed")
    parser.add_argument("--variant", help="another variant")
    options = parser.parse_args(arguments)
    try:
        content = json.loads(options.file.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("replay") != FORMAT:
            raise KvassayError(f"{options.file}: not a replay file of format {FORMAT}")
        name = options.backend or content["backend"]
        variant = options.variant or (None if options.backend else content["variant"])
        target = kvassay.load(name, variant)
        found = run_case(target, kvassay.load(REFERENCE), content["case"])
    except (OSError, ValueError, KeyError, KvassayError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    print(f"{name} {target.variant}: {found.mismatches} of {found.comparisons} values differ")
    if found.first is not None:
        print(json.dumps(found.first, indent=1, default=str))
    return 1 if found.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
