"""Builds for machines other than this one.

`emulated` builds the server that an emulator runs (kvassay_backends.emulated), unless it is up to
date. `libraries FOLDER` compiles the library for every target of the build recipe and ends with a
table of what was built, and not run.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import library
import recipe
from zig import compile_units, zig

EMULATED = recipe.BACKENDS / "kvassay_backends" / "emulated" / "_lib"
# Static, with a C library that needs no files of the other system: an emulator then needs none.
SERVER = recipe.Target("aarch64-linux-musl", "", "kvassay-serve-aarch64")
FOLDERS = (*recipe.BUILD_INFO["NATIVE_FOLDERS"], "server")
STATE = "built, not run"


def build_server(output: Path) -> dict[str, object]:
    """Compile and link the server; put it and its record (BuildRecord) into `output`."""
    units = recipe.sources(SERVER.machine)
    units += [recipe.Unit(path) for path in recipe.SOURCES.glob("server/*.c")]
    record = library.record_of(SERVER, units, recipe.BUILD_INFO["source_digest"](FOLDERS))
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        build_id = str(record["build_id"])
        objects = compile_units(units, library.machine_flags(SERVER), build_id, made)
        link = ("cc", "-target", SERVER.triple, "-mcpu=baseline", "-static", "-s")
        zig(*link, "-o", str(made / SERVER.library), *map(str, objects))
        text = json.dumps(record, indent=2) + "\n"
        (made / recipe.RECORD).write_text(text, encoding="utf-8")
        for name in (SERVER.library, recipe.RECORD):
            os.replace(made / name, output / name)
    return record


def server_is_fresh(output: Path) -> bool:
    """Whether the server in `output` was built from the present sources."""
    try:
        record = json.loads((output / recipe.RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(record["sources_digest"] == recipe.BUILD_INFO["source_digest"](FOLDERS))


def build_libraries(output: Path) -> list[Path]:
    """The library of every target, each in a folder of its own."""
    made = []
    for target in recipe.TARGETS.values():
        folder = output / target.wheel_tag
        library.build(target, folder)
        made.append(folder / target.library)
    return made


def unpacked_sdist(folder: Path) -> tuple[Path, Path]:
    """The sdist of this tree in `folder`, and beside it the folder that it unpacks to."""
    _build("--sdist", folder, recipe.BACKENDS.parent)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return sdist, sdist.with_name(sdist.name.removesuffix(".tar.gz"))


def build_wheel(target: recipe.Target, sources: Path, output: Path) -> Path:
    """The wheel for `target` in `output`, from unpacked sources."""
    _build("--wheel", output, sources, **{recipe.TARGET_VARIABLE: target.triple})
    (made,) = output.glob(f"*-py3-none-{target.wheel_tag}.whl")
    return made


def state(target: recipe.Target) -> str:
    """What may be said of what was built for `target`."""
    return "built, runs here" if target == recipe.host_target() else STATE


def _build(what: str, output: Path, sources: Path, **environment: str) -> None:
    command = [sys.executable, "-m", "build", what, "--no-isolation", "--outdir", str(output)]
    done = subprocess.run(
        [*command, str(sources)], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise recipe.BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _print_table(made: list[Path]) -> None:
    for target, path in zip(recipe.TARGETS.values(), made, strict=True):
        size = f"{path.stat().st_size / 1024:,.0f} KiB"
        print(f"{target.triple:24} {state(target):17} {size:>10}  {path}")


def main() -> int:
    """Build what the arguments name."""
    try:
        match sys.argv[1:]:
            case ["emulated"]:
                if not server_is_fresh(EMULATED):
                    build_server(EMULATED)
                print(EMULATED / SERVER.library)
            case ["libraries", folder]:
                _print_table(build_libraries(Path(folder)))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except recipe.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
