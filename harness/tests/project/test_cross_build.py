"""The library for every machine of the recipe: it links, exports its header, fuses nothing."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import cross
import lief
import pytest
from native_tools import SOURCES, compile_c

HEADERS = sorted((SOURCES / "include").glob("*.h"))
#: The entry point of ONNX Runtime's operators, and what linkers of macOS and MinGW add.
OTHERS = {
    *("RegisterCustomOps", "__dso_handle", "_mh_dylib_header"),
    *("_CRT_INIT", "__mingw_module_is_dll", "atexit"),
}
#: (mask, value) of fused multiply-add in A64: scalar; vector FMLA, FMLS; by element.
FUSED = (
    (0xFF000000, 0x1F000000),
    (0xBFA0FC00, 0x0E20CC00),
    (0xBFA0FC00, 0x0EA0CC00),
    (0xBF80F400, 0x0F801000),
    (0xBF80F400, 0x0F805000),
)


def declared() -> set[str]:
    """Every function that the public headers declare."""
    text = "".join(path.read_text(encoding="utf-8") for path in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"^\w[\w ]*[ *](kv_\w+)\(", text, flags=re.MULTILINE))


def exported(library: Path) -> set[str]:
    """Names of exported functions, as C has them."""
    parsed = lief.parse(library)
    assert isinstance(parsed, lief.ELF.Binary | lief.MachO.Binary | lief.PE.Binary)
    names = {str(function.name) for function in parsed.exported_functions}
    return (
        {name.removeprefix("_") for name in names}
        if isinstance(parsed, lief.MachO.Binary)
        else names
    )


def fused_words(library: Path) -> list[str]:
    """Fused multiply-adds among the instructions of an aarch64 library or object."""
    parsed = lief.parse(library)
    assert parsed is not None
    found = []
    for section in parsed.sections:
        if str(section.name) not in (".text", "__text"):
            continue
        content = bytes(section.content)
        words = struct.unpack(f"<{len(content) // 4}I", content[: len(content) // 4 * 4])
        found += [f"{w:08x}" for w in words if any(w & mask == value for mask, value in FUSED)]
    return found


def test_the_headers_declare_functions() -> None:
    assert {"kv_get_info", "kv_attend", "kv_cache_dump", "kv_cache_get_stats"} <= declared()


def test_a_fused_multiply_add_is_seen(tmp_path: Path) -> None:
    source, made = tmp_path / "fused.c", tmp_path / "fused.o"
    source.write_text("float f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n")
    flags = ["-target", "aarch64-linux-gnu", "-mcpu=baseline", "-O2", "-fno-math-errno"]
    compile_c([*flags, "-c", str(source), "-o", str(made)])
    assert len(fused_words(made)) == 1


@pytest.mark.long
def test_every_target_builds_and_exports_its_headers(tmp_path: Path) -> None:
    made = cross.build_libraries(tmp_path)
    assert len(made) >= 5
    for library in made:
        found = exported(library)
        assert {name for name in found if name.startswith("kv_")} == declared(), library
        assert found - declared() <= OTHERS, library
        if "arm64" in str(library) or "aarch64" in str(library):
            assert fused_words(library) == []
