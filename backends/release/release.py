"""Makes what a release consists of: `python backends/release/release.py FOLDER [--only KIND]...`

The sdist, a wheel and a C archive for every machine, the npm tarball, the crates, SHA256SUMS, a
bill of materials and README.md, which says what was only built. Everything is made from the sdist
of a clean tree, in a folder of its own; the time in the files is the commit's, so that two builds
of a commit are equal to the byte. Kinds: sdist, wheel, npm, crate, c; `--here`: this machine's.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))

import budget
import c_archive
import cross
import recipe
import sbom

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("sdist", "wheel", "npm", "crate", "c")
Say = Callable[[str], None]


def release(
    output: Path, kinds: Iterable[str], targets: list[recipe.Target], seconds: int, say: Say
) -> dict[str, str]:
    """Make the files of `kinds` in `output`; returns what to say of each, by its name.

    `seconds` since 1970 is the time of all that is in them. Raises BuildError.
    """
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise recipe.BuildError(f"{output} is not empty: name a new folder, or empty it")
    states = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
        sdist, sources = cross.unpacked_sdist(Path(folder))
        makers: dict[str, Callable[[], Iterable[tuple[Path, str]]]] = {
            "sdist": lambda: [(Path(shutil.copy(sdist, output)), "sources")],
            "wheel": lambda: _wheels(sources, targets, output),
            "npm": lambda: [(_npm(sources, output), "for Node and browsers")],
            "crate": lambda: _crates(sources, output),
            "c": lambda: _archives(targets, seconds, output),
        }
        for kind in kinds:
            for path, state in makers[kind]():
                if too_large := budget.excess(path):
                    raise recipe.BuildError(too_large)
                states[path.name] = state
                say(f"{path.name}  {path.stat().st_size / 1024:,.0f} KiB  {state}")
    return states


def _wheels(
    sources: Path, targets: list[recipe.Target], output: Path
) -> Iterable[tuple[Path, str]]:
    for target in targets:
        yield cross.build_wheel(target, sources, output), cross.state(target)


def _archives(
    targets: list[recipe.Target], seconds: int, output: Path
) -> Iterable[tuple[Path, str]]:
    for target in targets:
        state = cross.state(target)
        yield c_archive.build(target, version(), state, seconds, output), state


def _npm(sources: Path, output: Path) -> Path:
    """The host in JavaScript with its types and the modules, as `npm pack` makes it."""
    _run([sys.executable, "backends/hatch_build.py", "wasm"], sources)
    host = sources / "backends" / "kvassay_backends" / "js"
    (made,) = _run(["npm", "pack", "--silent", "--pack-destination", str(output)], host).split()
    return output / made


def _crates(sources: Path, output: Path) -> Iterable[tuple[Path, str]]:
    """The crates, each compiled from its package; without the network."""
    crates = sources / "backends" / "src" / "rust"
    _run(["cargo", "package", "--workspace", "--offline", "--allow-dirty", "--quiet"], crates)
    for crate in sorted((crates / "target" / "package").glob("*.crate")):
        yield Path(shutil.copy(crate, output)), "compiled here"


def _run(command: list[str], folder: Path) -> str:
    if shutil.which(command[0]) is None:
        raise recipe.BuildError(f"{command[0]} is not installed: {' '.join(command)}")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise recipe.BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def describe(output: Path, states: dict[str, str], seconds: int) -> None:
    """README.md, the bill of materials and SHA256SUMS, of all that is in `output`."""
    rows = "".join(
        f"| {name} | {(output / name).stat().st_size / 1024:,.0f} KiB | {state} |\n"
        for name, state in states.items()
    )
    title = f"# kvassay {version()}\n\n"
    table = f"| file | size | state |\n|---|---|---|\n{rows}"
    (output / "README.md").write_text(title + table, encoding="utf-8")
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = {
        **pyproject["project"],
        "build": pyproject["build-system"]["requires"],
    }
    sums = {name: _sha256(output / name) for name in states}
    bill = output / "kvassay.cdx.json"
    bill.write_text(sbom.bill(project, version(), sums, seconds), encoding="utf-8")
    others = {name: _sha256(output / name) for name in (bill.name, "README.md")}
    sbom.write_sums(output, {**sums, **others})


def version() -> str:
    """The version of the tree."""
    namespace: dict[str, str] = {}
    exec((ROOT / "harness" / "kvassay" / "_version.py").read_text(encoding="utf-8"), namespace)
    return namespace["__version__"]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit_time() -> int:
    """Seconds of the commit that the tree is, which must have no changes; else BuildError."""
    if changes := _run(["git", "status", "--porcelain"], ROOT):
        raise recipe.BuildError(
            f"the tree has changes, so no commit says what is in it:\n{changes}"
        )
    return int(_run(["git", "log", "-1", "--format=%ct"], ROOT))


def main() -> int:
    """Make a release, or the parts of it that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind of file")
    parser.add_argument("--here", action="store_true", help="for this machine alone")
    asked = parser.parse_args()
    targets = [recipe.host_target()] if asked.here else list(recipe.TARGETS.values())
    try:
        seconds = commit_time()
        output = asked.folder.resolve()
        states = release(
            output, asked.only or KINDS, targets, seconds, lambda t: print(t, flush=True)
        )
        describe(output, states, seconds)
    except recipe.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
