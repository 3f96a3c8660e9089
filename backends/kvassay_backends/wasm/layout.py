"""Structs, functions and constants of the headers as a wasm32 module has them.

They stay the only description: cffi parses them, and this module lays their structs out again with
pointers of four bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ..native.abi import declarations, header_path, retrieval_interface
from ..native.build_info import BOUNDED_HEADER_NAME, HEADER_NAME, RETRIEVAL_HEADER_NAME

POINTER: Final = 4
#: Size and `struct` letter of the primitive types that the header uses.
_PRIMITIVES: Final = {
    "int8_t": (1, "b"),
    "uint8_t": (1, "B"),
    "char": (1, "B"),
    "int16_t": (2, "h"),
    "uint16_t": (2, "H"),
    "int32_t": (4, "i"),
    "uint32_t": (4, "I"),
    "int64_t": (8, "q"),
    "uint64_t": (8, "Q"),
    "float": (4, "f"),
}


@dataclass(frozen=True)
class Field:
    """Where a member lies, and the `struct` format of its value; a nested struct is its bytes."""

    offset: int
    size: int
    format: str


@dataclass(frozen=True)
class Layout:
    """A struct of the header in linear memory."""

    name: str
    size: int
    align: int
    fields: Mapping[str, Field]

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """Its bytes, fields that are not named being 0."""
        out = bytearray(self.size)
        for name, value in values.items():
            field = self.fields[name]
            struct.pack_into("<" + field.format, out, field.offset, value)
        return bytes(out)

    def unpack(self, data: bytes) -> dict[str, Any]:
        """Values by field; an array of characters as its text."""
        found: dict[str, Any] = {}
        for name, field in self.fields.items():
            (value,) = struct.unpack_from("<" + field.format, data, field.offset)
            if isinstance(value, bytes):
                value = value.partition(b"\0")[0].decode("utf-8", "replace")
            found[name] = value
        return found


@cache
def layout(name: str) -> Layout:
    """The layout of a struct of either header, by its name."""
    fields: dict[str, Field] = {}
    end, widest = 0, 1
    for member, described in retrieval_interface().typeof(name).fields:
        size, align, format_ = _measure(described.type)
        offset = -(-end // align) * align
        fields[member] = Field(offset, size, format_)
        end, widest = offset + size, max(widest, align)
    return Layout(name, -(-end // widest) * widest, widest, fields)


def _measure(type_: Any) -> tuple[int, int, str]:
    """(bytes, alignment, format) of a C type on wasm32."""
    if type_.kind in ("pointer", "function"):
        return POINTER, POINTER, "I"
    if type_.kind == "primitive":
        size, letter = _PRIMITIVES[type_.cname]
        return size, size, letter
    if type_.kind == "array":
        size, align, letter = _measure(type_.item)
        letters = f"{type_.length}s" if type_.item.cname == "char" else f"{type_.length}{letter}"
        return size * type_.length, align, letters
    if type_.kind == "struct":
        inner = layout(type_.cname)
        return inner.size, inner.align, f"{inner.size}s"
    raise TypeError(f"no layout for {type_.cname}")


@cache
def constants() -> dict[str, int]:
    """The integer constants of the headers by name."""
    headers = (HEADER_NAME, RETRIEVAL_HEADER_NAME, BOUNDED_HEADER_NAME)
    text = "".join(map(_declared, headers))
    return {name: int(value) for name, value in re.findall(r"#define (KV_\w+) (\d+)", text)}


Signatures = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]


@cache
def signatures(header: str = HEADER_NAME) -> Signatures:
    """Parameters and results of each function of a header, as WebAssembly types."""
    text = re.sub(r"/\*.*?\*/", "", _declared(header), flags=re.S)
    text = re.sub(r"typedef struct \w+ \{.*?\}\s*\w+;", "", text, flags=re.S)
    found: Signatures = {}
    for declaration in re.findall(r"^[^#;{}]*?\bkv_\w+\([^;]*\);", text, flags=re.S | re.M):
        name = re.findall(r"\b(kv_\w+)\(", declaration)[0]
        pointer = declaration.replace(f"{name}(", "(*)(", 1).rstrip(";").strip()
        type_ = retrieval_interface().typeof(" ".join(pointer.split()))
        result = () if type_.result.kind == "void" else (_value_type(type_.result),)
        found[name] = (tuple(_value_type(argument) for argument in type_.args), result)
    return found


def retrieval_signatures() -> Signatures:
    """The same of kvassay_retrieval.h, which a module of caches may leave out."""
    return signatures(RETRIEVAL_HEADER_NAME)


def _declared(header: str) -> str:
    return declarations(header_path(header).read_text("utf-8"))


def _value_type(type_: Any) -> str:
    size, _, letter = _measure(type_)
    if letter == "f":
        return "f32"
    return "i64" if size == 8 else "i32"
