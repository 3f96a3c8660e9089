"""Holds the declarations of ort/abi.h against ONNX Runtime's official header, by compiling both.

The header is looked for in ONNXRUNTIME_INCLUDE_DIR; without that it comes out of a package of the
npm registry (143 MB), which needs npm. Exit status 77: no header, so nothing was checked.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

SOURCES = Path(__file__).resolve().parents[1] / "src"
CHECK = SOURCES / "abi_check" / "ort.c"
HEADER: Final = "onnxruntime_c_api.h"
PACKAGE: Final = "com.github.asus4.onnxruntime"
VARIABLE: Final = "ONNXRUNTIME_INCLUDE_DIR"
NOT_RUN: Final = 77


def find_headers(scratch: Path) -> tuple[Path | None, str]:
    """A folder with the official header, and where it is from or why there is none."""
    given = os.environ.get(VARIABLE)
    if given:
        if (Path(given) / HEADER).is_file():
            return Path(given), given
        return None, f"{VARIABLE} is {given}, which has no {HEADER}"
    if shutil.which("npm") is None:
        return None, f"{VARIABLE} is not set and there is no npm to get {PACKAGE} with"
    done = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=scratch, capture_output=True, text=True
    )
    packed = next(iter(scratch.glob("*.tgz")), None)
    if packed is None:
        return None, f"npm pack {PACKAGE} failed: {done.stderr.strip() or done.returncode}"
    return _unpack(packed, scratch / "headers"), packed.name


def _unpack(packed: Path, folder: Path) -> Path:
    """The headers beside the first official header of the package."""
    with tarfile.open(packed) as archive:
        wanted = [member for member in archive if member.isfile() and member.name.endswith(".h")]
        home = next(Path(m.name).parent for m in wanted if Path(m.name).name == HEADER)
        for member in wanted:
            if Path(member.name).parent == home:
                member.name = Path(member.name).name
                archive.extract(member, folder, filter="data")
    return folder


def check(headers: Path, scratch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Compile the assertions."""
    flags = (
        *more,
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-isystem",
        str(headers),
        f"-I{SOURCES}",
    )
    command = [sys.executable, "-m", "ziglang", "cc", *flags, "-c", str(CHECK)]
    output = ("-o", str(scratch / "ort.o"))
    return subprocess.run([*command, *output], capture_output=True, text=True)


def main() -> int:
    """Say what was compared with what; 0 if all agrees."""
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        headers, where = find_headers(scratch)
        if headers is None:
            print(f"ort/abi.h was not checked: {where}")
            return NOT_RUN
        done = check(headers, scratch)
        if done.returncode:
            print(f"ort/abi.h disagrees with the header of {where}:\n{done.stderr}")
            return 1
        if not check(headers, scratch, "-DKV_PLANTED").returncode:
            print("a planted wrong slot was not refused: nothing was really checked")
            return 1
        version = next(
            line.split()[2]
            for line in (headers / HEADER).read_text(encoding="utf-8").splitlines()
            if line.startswith("#define ORT_API_VERSION")
        )
        print(f"ort/abi.h agrees with {where}, API {version}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
