"""Fuzz one target with atheris: `python -m fuzzing.run TARGET [--seconds N] [--keep]`.

Run from harness/tests. A finding ends with another status than 0 and leaves `crash-...` behind.
`--keep` saves inputs that reached something new into the corpus, the smallest first.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from fuzzing.targets import CORPUS, TARGETS, seeds

KEPT_INPUTS: Final = 40
KEPT_BYTES: Final = 2000
_CHILD: Final = """
import sys
import atheris
with atheris.instrument_imports(include=["kvassay", "gguf"]):
    from fuzzing import targets
    import kvassay.models._checked_reader  # else imported at the first file
name = sys.argv.pop(1)
atheris.Setup(sys.argv, lambda data: targets.run(name, data) and None)
atheris.Fuzz()
"""


def main() -> int:
    """Fuzz, then save what was found worth keeping."""
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing of the Python readers")
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("not fuzzed: atheris is not installed; pip install atheris", file=sys.stderr)
        return 2
    own = CORPUS / asked.target
    own.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        grown = Path(folder)
        for number, data in enumerate(seeds(asked.target)):
            (grown / f"seed-{number}").write_bytes(data)
        limits = [f"-max_total_time={asked.seconds}", "-max_len=4096", "-timeout=20"]
        command = ["nice", "-n", "19", sys.executable, "-c", _CHILD, asked.target, *limits]
        status = subprocess.run([*command, str(grown), str(own)], check=False).returncode
        if asked.keep and status == 0:
            small = [path for path in grown.iterdir() if path.stat().st_size <= KEPT_BYTES]
            small.sort(key=lambda path: path.stat().st_size)
            for path in small[:: max(1, len(small) // KEPT_INPUTS)]:
                shutil.copyfile(path, own / path.name[:16])
    print(f"{asked.target}: {'no finding' if status == 0 else f'finding, status {status}'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
