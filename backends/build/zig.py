"""The zig compiler of the `ziglang` wheel."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recipe import BuildError, Unit


def zig(*arguments: str) -> str:
    """Run zig and return what it printed; BuildError with the compiler's message if it fails."""
    command = [sys.executable, "-m", "ziglang", *arguments]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"zig {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def compile_units(
    units: Iterable[Unit], flags: tuple[str, ...], build_id: str, output: Path
) -> list[Path]:
    """The object file of each, in `output`."""
    define = f'-DKV_BUILD_ID="{build_id}"'

    def compile_one(unit: Unit) -> Path:
        made = object_of(unit, output)
        # Only info.c has the id: the others stay the same for the compiler's cache.
        stamp = (define,) if unit.path.name == "info.c" else ()
        zig("cc", *flags, *unit.flags, *stamp, "-c", str(unit.path), "-o", str(made))
        return made

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(compile_one, units))


def object_of(unit: Unit, output: Path) -> Path:
    """Where a unit's object file goes."""
    return output / (unit.name.replace("/", ".").replace(" ", ".") + ".o")


def _environment() -> dict[str, str]:
    """The environment, with a cache that zig can write where the usual place is not writable."""
    environment = dict(os.environ)
    if "ZIG_GLOBAL_CACHE_DIR" not in environment:
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "zig"
        try:
            usual.mkdir(parents=True, exist_ok=True)
        except OSError:
            usual = Path(tempfile.gettempdir()) / "kvassay-zig-cache"
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(usual)
    return environment
