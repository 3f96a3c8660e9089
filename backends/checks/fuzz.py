"""Fuzzes the entry points of the C library: coverage-guided, under ASan and UBSan, with libFuzzer.

    python backends/checks/fuzz.py [--seconds N] [--keep] [TARGET...]

Targets are the files of `src/fuzz` that define LLVMFuzzerTestOneInput. Each starts from the inputs
in `src/fuzz/corpus/TARGET`. A finding ends with status 1 and the input in the current folder.
`--keep` writes back the smallest inputs that reach what the run has reached. Needs clang with
its sanitizer runtime (Debian: clang, libclang-rt-dev).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))

import recipe
import sanitize

FUZZ = recipe.SOURCES / "fuzz"
CORPUS = FUZZ / "corpus"
# What is shared by all targets, or no target.
_NOT_TARGETS = {"replay", "seeds"}
# Inputs longer than this are not kept: the corpus is part of the repository.
KEPT_BYTES = 3000
MAX_BYTES = 8192
KEPT_INPUTS = 40
QUIET = ("-Wno-unknown-warning-option",)


def targets() -> list[str]:
    """Names of the fuzz targets."""
    return sorted(path.stem for path in FUZZ.glob("*.c") if path.stem not in _NOT_TARGETS)


def build(name: str, objects: list[str], scratch: Path, kind: str = "fuzzer") -> Path:
    """The fuzzer of a target; kind "fuzzer-no-link" gives a program with a main of its own."""
    program = scratch / name
    flags = (*sanitize.FLAGS, *QUIET, f"-fsanitize={kind}")
    command = ["clang", *flags, *recipe.INCLUDE, str(FUZZ / f"{name}.c")]
    subprocess.run([*command, *objects, "-o", str(program), "-lm"], check=True)
    return program


def run(name: str, program: Path, seconds: int, keep: bool, scratch: Path) -> int:
    """Fuzz for so many seconds, at the lowest priority; the fuzzer's exit status."""
    grown, own = scratch / "grown" / name, CORPUS / name
    own.mkdir(parents=True, exist_ok=True)
    limits = (f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-timeout=20")
    quiet = ("-print_final_stats=1", "-rss_limit_mb=2048")
    command = ["nice", "-n", "19", str(program), *limits, *quiet, str(grown), str(own)]
    status = subprocess.run(
        command, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}
    ).returncode
    if keep and status == 0:
        _keep(program, grown, own, scratch / f"{name}.merged")
    return status


def _keep(program: Path, grown: Path, own: Path, merged: Path) -> None:
    """The smallest inputs that cover what both folders cover, as the new corpus."""
    merged.mkdir()
    command = [str(program), "-merge=1", str(merged), str(own), str(grown)]
    subprocess.run(command, check=True, capture_output=True)
    found = sorted(merged.iterdir(), key=lambda path: path.stat().st_size)
    small = [path for path in found if path.stat().st_size <= KEPT_BYTES]
    step = max(1, len(small) // KEPT_INPUTS)
    shutil.rmtree(own)
    own.mkdir()
    for path in small[::step]:
        shutil.copyfile(path, own / path.name[:16])


def main() -> int:
    """Build once, fuzz one target after the other."""
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing of the C library")
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", action="store_true", help="write the corpus back")
    asked = parser.parse_args()
    names = asked.targets or targets()
    if unknown := sorted(set(names) - set(targets())):
        print(f"no fuzz target {unknown[0]!r}; there are: {', '.join(targets())}", file=sys.stderr)
        return 2
    if shutil.which("clang") is None:
        print("not fuzzed: no clang; install clang with its sanitizer runtime", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        try:
            instrumented = ("-fsanitize=fuzzer-no-link", *QUIET)
            objects = sanitize.compile_objects("clang", scratch, instrumented)
            for name in targets():
                (scratch / "grown" / name).mkdir(parents=True)
            seeds = build("seeds", objects, scratch, "fuzzer-no-link")
            subprocess.run([str(seeds), str(scratch / "grown")], check=True)
            for name in names:
                program = build(name, objects, scratch)
                status = run(name, program, asked.seconds, asked.keep, scratch)
                print(f"{name}: {'no finding' if status == 0 else f'finding, status {status}'}")
                if status != 0:
                    return 1
        except (recipe.BuildError, subprocess.CalledProcessError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
