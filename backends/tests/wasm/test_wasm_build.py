"""The modules as files: what they import, which instructions they use, and that they can be made
again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import library
import pytest
import recipe
import wasmtime

from kvassay_backends.wasm import build_info

VARIANTS = ("scalar", "simd128", "relaxed")
#: Vector instructions by number after the prefix 0xfd (WebAssembly 3.0, relaxed SIMD 0x100 on).
RELAXED = range(0x100, 0x114)
SWIZZLE, DOT_ADD = 0x100, 0x113
#: Instructions followed by one number: block, loop, if, br, br_if, call, locals, globals, ref.func,
#: constants, memory.size and grow.
ONE_NUMBER = (*range(2, 5), 0x0C, 0x0D, 0x10, *range(0x20, 0x25), 0xD2, 0x41, 0x42, 0x3F, 0x40)


def file_of(variant: str) -> Path:
    record = build_info.build_record()
    assert record is not None
    return build_info.LIBRARY_DIR / record["modules"][variant]["file"]


def test_they_are_built_from_the_present_sources() -> None:
    assert build_info.stale_reason() is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_they_import_nothing_and_export_only_the_interface(variant: str) -> None:
    compiled = wasmtime.Module.from_file(wasmtime.Engine(), str(file_of(variant)))
    assert list(compiled.imports) == []
    names = {export.name for export in compiled.exports}
    assert {name for name in names if not name.startswith(("kv_", "kvd_"))} == {"memory"}


def vector_instructions(path: Path) -> set[int]:
    """Numbers of the vector instructions in a module's text form, by their names."""
    return {number for number, _ in disassembled(path)}


def disassembled(path: Path) -> Iterator[tuple[int, int]]:
    """(number, where) of each vector instruction of the code section."""
    data = path.read_bytes()
    for start, end in code_bodies(data):
        yield from walk(data, start, end)


def leb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def code_bodies(data: bytes) -> Iterator[tuple[int, int]]:
    at = 8
    while at < len(data):
        section = data[at]
        size, at = leb(data, at + 1)
        if section == 10:
            count, inner = leb(data, at)
            for _ in range(count):
                length, inner = leb(data, inner)
                begin, groups = inner, 0
                groups, begin = leb(data, begin)
                for _ in range(groups):
                    _, begin = leb(data, begin)
                    begin += 1
                yield begin, inner + length
                inner += length
        at += size


def walk(data: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Steps over every instruction of a body; an unknown one is an error."""
    while at < end:
        where, op = at, data[at]
        at += 1
        if op in ONE_NUMBER:
            _, at = leb(data, at)
        elif op == 0x11:  # call_indirect
            _, at = leb(data, at)
            _, at = leb(data, at)
        elif op == 0x0E:  # br_table
            count, at = leb(data, at)
            for _ in range(count + 1):
                _, at = leb(data, at)
        elif 0x28 <= op <= 0x3E:  # loads and stores
            _, at = leb(data, at)
            _, at = leb(data, at)
        elif op == 0x43:
            at += 4
        elif op == 0x44:
            at += 8
        elif op == 0xFC:
            number, at = leb(data, at)
            for _ in range({8: 2, 10: 2, 11: 1}.get(number, 0)):
                _, at = leb(data, at)
        elif op == 0xFD:
            number, at = leb(data, at)
            yield number, where
            if number <= 11 or number in (92, 93):
                _, at = leb(data, at)
                _, at = leb(data, at)
            elif 84 <= number <= 91:
                _, at = leb(data, at)
                _, at = leb(data, at)
                at += 1
            elif number in (12, 13):
                at += 16
            elif 21 <= number <= 34:
                at += 1
        else:
            plain = op in (0x00, 0x01, 0x05, 0x0B, 0x0F, 0x1A, 0x1B) or 0x45 <= op <= 0xC4
            assert plain, f"instruction {op:#x} at {where}"


def test_scalar_has_no_vectors_and_simd128_nothing_relaxed() -> None:
    assert vector_instructions(file_of("scalar")) == set()
    simd = vector_instructions(file_of("simd128"))
    assert len(simd) > 30
    assert simd.isdisjoint(RELAXED)


def test_relaxed_uses_the_two_instructions_that_cannot_differ() -> None:
    """Never the relaxed multiply-add, minimum, maximum, truncation or lane select."""
    assert vector_instructions(file_of("relaxed")) & set(RELAXED) == {SWIZZLE, DOT_ADD}


def test_no_minimum_or_maximum_of_two_rules() -> None:
    """f32x4.min and max (232, 233) differ from a comparison at NaN and zeros; pmin, pmax do not."""
    for variant in ("simd128", "relaxed"):
        assert vector_instructions(file_of(variant)).isdisjoint({232, 233, 244, 245})


def test_the_walk_finds_a_forbidden_instruction(tmp_path: Path) -> None:
    path = tmp_path / "madd.wasm"
    path.write_bytes(
        wasmtime.wat2wasm(
            """(module (func (param v128) (result v128) (f32x4.relaxed_madd
            (local.get 0) (local.get 0) (local.get 0))))"""
        )
    )
    assert vector_instructions(path) & set(RELAXED) == {0x105}


def test_a_module_can_be_made_again_byte_by_byte(tmp_path: Path) -> None:
    record = build_info.build_record()
    assert record is not None
    again = tmp_path / "again.wasm"
    library.link_wasm(recipe.wasm_sources("scalar"), record["build_id"], again)
    assert again.read_bytes() == file_of("scalar").read_bytes()


def test_each_module_has_the_kernels_of_its_variant_alone() -> None:
    for variant in VARIANTS:
        kernels = [unit for unit in recipe.wasm_sources(variant) if unit.isa]
        assert len({unit.path.parent for unit in kernels}) > 10
        assert {unit.isa for unit in kernels} == {variant}
        assert all(f"-DKV_ISA={variant}" in unit.flags for unit in kernels)


def test_no_flag_breaks_the_numeric_contract() -> None:
    record = build_info.build_record()
    assert record is not None
    flags = {*record["flags"]}
    for built in record["modules"].values():
        flags |= {flag for own in built["files"].values() for flag in own}
    assert "-ffp-contract=off" in flags
    assert flags & {"-ffast-math", "-Ofast", "-ffp-contract=fast"} == set()
