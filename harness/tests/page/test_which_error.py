"""Every bit of small dumps, flipped behind right checksums, in every backend and in the independent
reader: the table of docs/page-format.md, "Which error", says what each of them gives."""

from __future__ import annotations

import contextlib
import json
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from bad_input_tools import BEST, rows

import kvassay
from kvassay import Cache, Identity, Spec
from kvassay.errors import IdentityError, PageError
from kvassay.page.layout import with_crc
from kvassay_backends.wasm.backend import WasmBackend
from kvassay_suites.oracle import OracleError, OtherCacheError, check_dump, read_dump

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "page-format.md"
TINY: Final = {"kv_heads": 1, "query_heads": 1, "head_dim": 16, "page_tokens": 16}
SPECS: Final = {
    "turbo": Spec(1, **TINY, keys="turbo:2", values="turbo:2", sinks=1, value_centre="frozen"),
    "mixed": Spec(
        2,
        **TINY,
        keys="turbo:2.5+qjl",
        values="kivi:2",
        key_centre="page",
        scale="fp16",
        identity=Identity(model="m"),
        layer_overrides={1: {"keys": "kivi:2", "values": "fp16", "span": 20}},
    ),
}
TOKENS: Final = 18
#: Fields of fixed places: name, bytes. Where bits of one field have several names: (bits, name).
Fields = tuple[tuple[str | tuple[tuple[int, str], ...], int], ...]
DUMP_HEADER: Final[Fields] = (
    *(("magic", 4), ("version", 2), ("reserved", 2), ("size", 8), ("CRC", 4)),
    *(("layers", 4), ("identity size", 4), ("reserved", 4)),
)
LAYER_RECORD: Final[Fields] = (
    *(("kv_heads", 2), ("query_heads", 2), ("head_dim", 2), ("page_tokens", 2)),
    *(("keys", 1), ("values", 1), ("key_centre", 1), ("value_centre", 1)),
    *(("scale", 1), ("rounds", 1), ("reserved", 2), ("window", 4), ("sinks", 4), ("span", 4)),
    *(("softmax_scale", 4), ("seed", 8), ("length", 8), ("first page", 4), ("pages", 4)),
    ("offset", 8),
)
FLAGS: Final = (
    *((0x3, "scale kind"), (0xC, "key centring"), (0x30, "value centring")),
    *((0xF00, "codebook version"), (0xF0C0, "unknown flags")),
)
PAGE_HEADER: Final[Fields] = (
    *(("magic", 4), ("version", 2), (FLAGS, 2), ("model", 8), ("tokenizer", 8), ("runtime", 8)),
    *(("seed", 8), ("token start", 4), ("CRC", 4), ("layer", 2), ("token count", 2)),
    *(("KV heads", 2), ("head dim", 2), ("stored dim", 2), ("transform", 2)),
    *(("key mode", 1), ("value mode", 1), ("reserved", 2)),
)
#: Checksums are mended, so that the fields decide: a flip in one is undone.
MENDED: Final = "CRC"
Answer = tuple[str, str]
TAKEN: Final[Answer] = ("", "")
DAMAGE: Final[Answer] = ("PageError", "")


def documented() -> dict[tuple[str, str], Answer]:
    """The table: (where, field) to error and field."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.split("## Which error", 1)[1].split("\n## ", 1)[0]
    out: dict[tuple[str, str], Answer] = {}
    for where, fields, error in re.findall(r"^\| ([\w ]+) \| (.*) \| `(\w+)` \|$", section, re.M):
        for name in re.findall(r"`([^`]+)`", fields):
            assert (where, name) not in out, "one field, one error"
            out[where, name] = (error, name if error == "IdentityError" else "")
    return out


@dataclass(frozen=True)
class Sample:
    """A dump, where its fields lie, and which of its bytes are a page's."""

    spec: Spec
    data: bytes
    pages: tuple[tuple[int, int], ...]

    def flipped(self, *bits: int) -> bytes:
        """The dump with these bits flipped and its checksums mended."""
        bad = bytearray(self.data)
        for bit in bits:
            bad[bit // 8] ^= 1 << bit % 8
        for start, end in self.pages:
            if bad[start:end] != self.data[start:end]:
                bad[start:end] = with_crc(bytes(bad[start:end]))
        return mended(bad)


def mended(dump: bytearray) -> bytes:
    """The dump with its own checksum made right."""
    dump[16:20] = bytes(4)
    dump[16:20] = struct.pack("<I", zlib.crc32(dump))
    return bytes(dump)


@cache
def sample(name: str) -> Sample:
    spec = SPECS[name]
    with kvassay.load("reference").prepare(spec) as made:
        for layer in range(spec.layers):
            made.append(layer, *(rows(TOKENS, 1, layer + s)[..., :16] for s in (1, 2)))
        data = made.dump()
    found = read_dump(data)
    pages = [(at, at + x.page_bytes) for x in found.layers for at in x.page_offsets]
    assert len(pages) == spec.layers
    return Sample(spec, data, tuple(pages))


def names(fields: Fields) -> list[str]:
    """The name of each bit of a header or record."""
    out: list[str] = []
    for name, size in fields:
        if isinstance(name, str):
            out += [name] * 8 * size
        else:
            out += [next(n for bits, n in name if bits >> i & 1) for i in range(8 * size)]
    return out


def expected_answers(one: Sample) -> list[Answer]:
    """What every bit gives: fields by the table, numbers and gaps by what they are."""
    table = documented()
    said: list[Answer] = [DAMAGE] * (8 * len(one.data))  # what follows no more below is a gap

    def put(start: int, where: str, fields: Fields) -> None:
        for i, name in enumerate(names(fields)):
            said[8 * start + i] = TAKEN if name == MENDED else table[where, name]

    put(0, "dump header", DUMP_HEADER)
    size = len(one.spec.identity_text)
    for bit in range(8 * 32, 8 * (32 + size)):
        said[bit] = text_answer(one.spec.identity_text, one.flipped(bit)[32 : 32 + size])
    at = 32 + -(-size // 16) * 16
    found = read_dump(one.data)
    for number, layer in enumerate(found.layers):
        put(at + 64 * number, "layer record", LAYER_RECORD)
        for section in layer.sections.values():
            count = section.shape[0] * section.shape[-1] * (section.shape[1:-1] or (1,))[0]
            put_numbers(one.data, said, section.offset, count, 2, "any")
        for index, start in enumerate(layer.page_offsets):
            put(start, "page header", PAGE_HEADER)
            for name, stream in found.page(number, index).streams.items():
                kind = kind_of(name)
                width = {"<f2": 2, "<f4": 4}.get(stream.dtype, 0)
                count = stream.size // (width or 1)
                put_numbers(one.data, said, start + stream.offset, count, width, kind)
    return said


def kind_of(stream: str) -> str:
    if stream.endswith("maxima"):
        return "maximum"
    return "any" if stream.split()[-1] in ("codes", "minima", "mean") else "positive"


def put_numbers(
    data: bytes, said: list[Answer], start: int, count: int, width: int, kind: str
) -> None:
    """Bits of codes are all taken, those of a number where a page may store what they make."""
    for at in range(start, start + count * (width or 1), width or 1):
        raw = int.from_bytes(data[at : at + width], "little")
        for bit in range(8 * (width or 1)):
            good = width == 0 or storable(raw ^ 1 << bit, width, kind)
            said[8 * at + bit] = TAKEN if good else DAMAGE


def storable(raw: int, width: int, kind: str) -> bool:
    if width == 4:
        return raw == 0 or 0x00800000 <= raw < 0x7F800000
    finite = raw & 0x7C00 != 0x7C00
    return finite and (kind == "any" or raw < 0x8000)


def text_answer(own: str, found: bytes) -> Answer:
    try:
        other = json.loads(found.decode())
    except ValueError:
        return DAMAGE
    wanted = json.loads(own)
    for name in sorted({*wanted, *other}):
        left, right = (json.dumps(x.get(name, "-"), sort_keys=True) for x in (wanted, other))
        if left == right:
            continue
        nested = [x.get(name) for x in (wanted, other)]
        if all(isinstance(x, dict) for x in nested):
            inner = text_answer(left, right.encode())
            return "IdentityError", f"{name}.{inner[1]}"
        return "IdentityError", name
    return DAMAGE


Restore = Callable[[Spec, bytes], AbstractContextManager[Cache | None]]
#: Backend and variant; None is the independent reader.
Which = tuple[str, str] | None


def reader(which: Which) -> Restore:
    """How it takes a dump."""
    if which is None:
        return independent
    loaded = kvassay.load(*which)
    return loaded.in_one_memory().restore if isinstance(loaded, WasmBackend) else loaded.restore


def independent(spec: Spec, data: bytes) -> AbstractContextManager[None]:
    check_dump(data, spec.identity_text)
    return contextlib.nullcontext()


def answer(restore: Restore, spec: Spec, data: bytes) -> Answer:
    try:
        with restore(spec, data) as made:
            same = made is None or made.dump() == data
            return TAKEN if same else ("", "taken, but not to the bit")
    except (IdentityError, OtherCacheError) as error:
        return "IdentityError", error.field
    except (PageError, OracleError):
        return DAMAGE


def trials(said: list[Answer]) -> list[tuple[tuple[int, ...], Answer]]:
    """Bits to flip in one dump, and what it gives. Those that are taken go together, but for two of
    one number: a dump is taken where every one of them is."""
    alone = [((bit,), what) for bit, what in enumerate(said) if what != TAKEN]
    together = [
        tuple(bit for bit in range(first, len(said), 128) if said[bit] == TAKEN)
        for first in range(128)
    ]
    return [*alone, *((bits, TAKEN) for bits in together)]


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("which", [None, *BEST])
def test_every_bit_gives_the_documented_error(which: Which, kind: str) -> None:
    one, restore = sample(kind), reader(which)
    assert answer(restore, one.spec, one.data) == TAKEN
    wrong = [
        f"bit {bits[0] % 8} of byte {bits[0] // 8} and {len(bits) - 1} more: {found}, not {said}"
        for bits, said in trials(expected_answers(one))
        if (found := answer(restore, one.spec, one.flipped(*bits))) != said
    ]
    assert wrong == []


@pytest.mark.parametrize("which", [None, *BEST])
def test_pages_that_changed_places_are_damage(which: Which) -> None:
    """Each is sound and of this cache: only where it lies is wrong."""
    spec = SPECS["turbo"]
    with kvassay.load("reference").prepare(spec) as made:
        made.append(0, *(rows(2 * TOKENS, 1, s)[..., :16] for s in (1, 2)))
        data = made.dump()
    layer = read_dump(data).layers[0]
    first, second = layer.page_offsets
    size, bad = layer.page_bytes, bytearray(data)
    bad[first : first + size] = data[second : second + size]
    bad[second : second + size] = data[first : first + size]
    assert answer(reader(which), spec, mended(bad)) == DAMAGE
