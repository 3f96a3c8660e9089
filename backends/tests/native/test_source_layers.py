"""The C sources in layers, and the lists that stand once: variants, fields of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import recipe
from native_tools import SOURCES

#: Of `src`, lowest first: a file includes what is in its own folder or in one before it.
LAYERS = (
    *("include", "core/base", "kernels", "core/dispatch"),
    *("core/plan", "core/page", "core/attend", "core/cache"),
)


def layer_of(path: str) -> str | None:
    return next((layer for layer in LAYERS if path.startswith(f"{layer}/")), None)


def includes(sources: Path) -> Iterator[tuple[str, str]]:
    """(file, what it includes) of the core and the kernels, both below the sources."""
    for folder in ("core", "kernels"):
        for path in sources.glob(f"{folder}/**/*.[ch]"):
            for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE):
                (found,) = {
                    place.resolve()
                    for place in (path.parent / name, sources / name, sources / "include" / name)
                    if place.is_file()
                }
                yield path.relative_to(sources).as_posix(), found.relative_to(sources).as_posix()


def upward(pairs: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that include what is not below them."""
    wrong = []
    for file, included in pairs:
        own, other = layer_of(file), layer_of(included)
        if own is None or other is None or LAYERS.index(other) > LAYERS.index(own):
            wrong.append((file, included))
    return wrong


def test_each_layer_includes_only_those_below_it() -> None:
    assert len(list(includes(SOURCES))) > 150
    assert upward(includes(SOURCES)) == []


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("kernels/rows/avx2.c", "core/dispatch/variants.h"),
        ("core/cache/memory.c", "wasm/libc/string.h"),
        ("core/base/fail.c", "kernels/kernels.h"),
    ],
)
def test_an_include_from_above_is_seen(file: str, included: str) -> None:
    assert upward(iter([(file, included)])) == [(file, included)]


def test_every_file_of_the_core_is_in_a_layer() -> None:
    files = [path.relative_to(SOURCES).as_posix() for path in SOURCES.glob("core/**/*.[ch]")]
    assert len(files) > 50
    assert [file for file in files if layer_of(file) is None] == []


def test_the_variants_of_c_are_the_instruction_sets_of_the_recipe() -> None:
    text = (SOURCES / "kernels" / "variants.h").read_text()
    machines = {"x86_64": "__x86_64__", "aarch64": "__aarch64__"}
    for machine, macro in machines.items():
        listed = text.partition(f"defined({macro})")[2].partition("#el")[0]
        assert re.findall(r"\bX\((\w+), \w+\)", listed) == [*recipe.ISAS[machine]]


def test_the_fields_of_c_are_those_of_a_dump() -> None:
    """The table of docs/page-format.md, "Which error", names them in the record's order."""
    fields = (SOURCES / "core" / "plan" / "fields.h").read_text().partition("#define KV_EACH")[2]
    rows = fields.partition("\n\n")[0]
    names = re.findall(r"(?:X|NAMED)\(\w+, (\w+)", rows)
    page_format = (SOURCES.parents[1] / "docs" / "page-format.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| layer record \| (`kv_heads`.+?) \|", page_format, re.MULTILINE)
    assert names == re.findall(r"`(\w+)`", row)


def test_hot_files_of_the_modules_exist() -> None:
    for name in recipe.WASM_HOT:
        assert (SOURCES / "core" / f"{name}.c").is_file(), name
