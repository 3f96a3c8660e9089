"""Readers of foreign bytes: each takes anything, and returns or raises an error of kvassay.

`python -m fuzzing.run` drives them with atheris; the tests replay saved inputs.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from kvassay import Spec
from kvassay.errors import KvassayError
from kvassay.models.gguf_file import GGUFFile
from kvassay.page.check import check_page
from kvassay.page.dump import pack_dump, parse_dump
from kvassay.page.layout import with_crc
from kvassay.records import read_records
from kvassay_backends.reference import ReferenceBackend

CORPUS: Final = Path(__file__).resolve().parent / "corpus"
BACKEND: Final = ReferenceBackend()
_CODECS: Final = (
    ("turbo:3.5", "turbo:3", "page", "frozen", "u8"),
    ("turbo:2+qjl", "kivi:2", "frozen", "none", "u8log"),
    ("kivi:4", "turbo:4", "frozen", "frozen", "fp16"),
    ("fp16", "fp16", "none", "none", "u8"),
)
_DUMP_CRC: Final = 16


@cache
def spec_number(number: int) -> Spec:
    """A small spec of each codec family."""
    keys, values, key_centre, value_centre, scale = _CODECS[number % len(_CODECS)]
    return Spec(
        layers=1,
        kv_heads=1,
        query_heads=2,
        head_dim=16,
        keys=keys,
        values=values,
        window=3,
        sinks=2,
        page_tokens=16,
        scale=scale,
        key_centre=key_centre,
        value_centre=value_centre,
    )


def page(data: bytes) -> None:
    """A page: first byte the spec, and whether its checksum is made right."""
    if not data:
        return
    body = data[1:]
    if data[0] & 8 and len(body) >= 64:
        body = with_crc(body)
    spec = spec_number(data[0])
    check_page(spec.layer(0), body, layer=0, token_start=2, identity=None)


def dump(data: bytes) -> None:
    """A dump: what is accepted comes out as it went in, and answers."""
    if not data:
        return
    body = bytearray(data[1:])
    if data[0] & 8 and len(body) >= 32:
        body[_DUMP_CRC : _DUMP_CRC + 4] = bytes(4)
        struct.pack_into("<I", body, _DUMP_CRC, zlib.crc32(body))
    spec = spec_number(data[0])
    layers = parse_dump(spec, bytes(body))
    assert pack_dump(spec, layers) == body
    with BACKEND.restore(spec, bytes(body)) as restored:
        if restored.length:
            restored.attend(0, np.ones((2, 16), np.float32))


def gguf(data: bytes) -> None:
    """A model file: its metadata and the names of its tensors."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data)
        file.flush()
        opened = GGUFFile(Path(file.name))
        for name in opened.tensor_names():
            opened.has(name)
        opened.text("general.architecture", "none")


def records(data: bytes) -> None:
    """A file of records."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(data)
        file.flush()
        for record in read_records(file.name):
            record.to_json()


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "page": page,
    "dump": dump,
    "gguf": gguf,
    "records": records,
}


def run(name: str, data: bytes) -> bool:
    """Whether a target accepts the bytes; errors of kvassay are a refusal, others come up."""
    try:
        TARGETS[name](data)
    except KvassayError:
        return False
    return True


def seeds(name: str) -> list[bytes]:
    """Sound inputs to start from."""
    if name == "records":
        line = (
            b'{"backend":"b","check":"a.b","comparisons":1,"detail":{"x":[1,"nan"]},'
            b'"preset":"turbo","reproduce":"","schema":1,"stage":"math","subject":"s","suite":"a",'
            b'"unit":"u","value":0.5,"variant":"scalar"}\n'
        )
        return [line, line * 2 + b"\n", b"{}", b'{"value": NaN}', b"[1]\n"]
    if name == "gguf":
        return [_gguf(), _gguf()[:20], b"GGUF"]
    found = []
    for number in range(len(_CODECS)):
        spec = spec_number(number)
        for tokens in (0, 3, 40):
            rows = np.random.default_rng(tokens).standard_normal((tokens, 1, 16), np.float32)
            with BACKEND.prepare(spec) as made:
                made.append(0, rows, rows)
                parts = [made.dump()] if name == "dump" else made.pages(0)
            found += [bytes([8 | number]) + part for part in parts[:1]]
    return found


def _gguf() -> bytes:
    """Version 3, two metadata values, one tensor."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    architecture = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    alignment = text("general.alignment") + struct.pack("<II", 4, 32)
    tensor = text("a.weight") + struct.pack("<IQIQ", 1, 8, 0, 0)
    front = head + architecture + alignment + tensor
    return front + bytes(-len(front) % 32) + np.arange(8, dtype="<f4").tobytes()
