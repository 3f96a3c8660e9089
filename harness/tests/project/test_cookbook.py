"""The cookbook: what it says is seen is what its programs print."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kvassay_backends.native import build_info

ROOT: Final = Path(__file__).resolve().parents[3]
EXAMPLES: Final = ROOT / "docs" / "examples"
PAGE: Final = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
_NUMBERS: Final = re.compile(r"layer \d attends [0-9a-f ]+|\d+ bytes(?=, \d+ held)")


def printed(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(text: str) -> list[str]:
    """The lines that are the same on every machine and in every language."""
    return _NUMBERS.findall(text)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], bytes]:
    dump = tmp_path_factory.mktemp("reference") / "a.kvdump"
    text = printed(sys.executable, EXAMPLES / "standalone.py", dump, "reference")
    return said(text), dump.read_bytes()


def test_the_page_shows_what_the_reference_prints(reference: tuple[list[str], bytes]) -> None:
    assert len(reference[0]) == 3
    assert said(PAGE) == reference[0]


@pytest.mark.parametrize("compiler", ["gcc -std=c11", "g++ -xc++", "clang -std=c11"])
def test_c(compiler: str, reference: tuple[list[str], bytes], tmp_path: Path) -> None:
    words = compiler.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]}")
    library = build_info.LIBRARY_DIR
    flags = ("-Wall", "-Wextra", "-Werror", f"-I{library}", f"-L{library}", "-lkvassay")
    program, dump = tmp_path / "program", tmp_path / "a.kvdump"
    where = f"-Wl,-rpath,{library}"
    printed(*words, EXAMPLES / "standalone.c", *flags, where, "-o", program)
    assert said(printed(program, dump)) == reference[0]
    assert dump.read_bytes() == reference[1]


def test_javascript(reference: tuple[list[str], bytes], tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node")
    backends = ROOT / "backends" / "kvassay_backends"
    package = tmp_path / "node_modules" / "kvassay"
    shutil.copytree(backends / "js", package)
    shutil.copytree(backends / "wasm" / "_lib", package / "wasm", dirs_exist_ok=True)
    program = shutil.copy(EXAMPLES / "standalone.mjs", tmp_path)
    dump = tmp_path / "a.kvdump"
    assert said(printed("node", program, dump)) == reference[0]
    assert dump.read_bytes() == reference[1]


def test_server() -> None:
    text = printed(sys.executable, EXAMPLES / "server.py")
    assert len(text.splitlines()) == 3
    assert "".join(f"    {line}\n" for line in text.splitlines()) in PAGE


def test_the_golden_pack_is_read(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node")
    printed(sys.executable, "-m", "kvassay", "golden-pack", tmp_path / "pack")
    assert printed("node", tmp_path / "pack" / "check.mjs").strip()
