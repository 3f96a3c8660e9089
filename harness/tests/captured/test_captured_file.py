"""The file of captured tensors: what is written comes back, and hostile files are refused."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvassay.captured import FORMAT, Layer, Provenance, open_captured, write_captured
from kvassay.captured.reader import MAX_HEADER
from kvassay.errors import InputError, TensorsError, WriteError
from kvassay.spec import Rope

TOKENS, QUERY_HEADS, KV_HEADS, HEAD_DIM = 20, 4, 2, 32
ORIGIN = Provenance(
    model="some model",
    text_digest="ab12",
    layers=8,
    softmax_scale=0.25,
    model_digest="cd34",
    rope=Rope(base=1e4, dims=32, order="half"),
    made_by={"runtime": "1.2"},
)

Header = dict[str, Any]


def layer(seed: int, dtype: Any = np.float32) -> Layer:
    rng = np.random.default_rng(seed)

    def draw(heads: int) -> Any:
        return rng.standard_normal((TOKENS, heads, HEAD_DIM)).astype(dtype)

    return Layer(draw(QUERY_HEADS), draw(KV_HEADS), draw(KV_HEADS))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "good.safetensors"
    write_captured(path, ORIGIN, {0: layer(0), 5: layer(5)})
    return path


def test_what_was_written_comes_back(written: Path) -> None:
    file = open_captured(written)
    file.check_values()
    assert file.provenance == ORIGIN
    assert (file.layers, file.tokens) == ((0, 5), TOKENS)
    assert (file.query_heads, file.kv_heads, file.head_dim) == (QUERY_HEADS, KV_HEADS, HEAD_DIM)
    found, first = file.layer(5), file.layer(0, tokens=3)
    for part in "qkv":
        assert np.array_equal(getattr(found, part), getattr(layer(5), part))
        assert np.array_equal(getattr(first, part), getattr(layer(0), part)[:3])


def test_fp16_tensors_are_read_as_float32(tmp_path: Path) -> None:
    path = tmp_path / "half.safetensors"
    write_captured(path, ORIGIN, {1: layer(1, np.float16)})
    found = open_captured(path).layer(1)
    assert found.k.dtype == np.float32
    assert np.array_equal(found.k, layer(1, np.float16).k.astype(np.float32))


def test_a_model_that_says_little_is_enough(tmp_path: Path) -> None:
    origin = Provenance(model="m", text_digest="t", layers=1, softmax_scale=1)
    path = tmp_path / "little.safetensors"
    write_captured(path, origin, {0: layer(0)})
    assert open_captured(path).provenance == origin


def test_writing_refuses_other_dtypes_nothing_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layers\.0\.q is float64"):
        write_captured(tmp_path / "x", ORIGIN, {0: layer(0, np.float64)})
    with pytest.raises(InputError, match="no layer"):
        write_captured(tmp_path / "x", ORIGIN, {})
    with pytest.raises(WriteError, match="captured tensors"):
        write_captured(tmp_path / "none" / "x", ORIGIN, {0: layer(0)})
    assert not list(tmp_path.iterdir())


# --- hostile files --------------------------------------------------------------------------------


def parts(path: Path) -> tuple[Header, bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(path: Path, header: Header | bytes, body: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def _record(**changes: Any) -> Callable[[Header], None]:
    def change(header: Header) -> None:
        record = json.loads(header["__metadata__"]["kvassay"])
        record.update(changes)
        for name in [name for name, value in changes.items() if value is Ellipsis]:
            del record[name]
        header["__metadata__"]["kvassay"] = json.dumps(record)

    return change


def _tensor(name: str, **changes: Any) -> Callable[[Header], None]:
    return lambda header: header[name].update(changes)


ALL = tuple(f"layers.{number}.{part}" for number in (0, 5) for part in "qkv")


def _drop(*names: str) -> Callable[[Header], None]:
    def change(header: Header) -> None:
        for name in names:
            del header[name]

    return change


def _renamed(old: str, new: str) -> Callable[[Header], None]:
    return lambda header: header.update({new: header.pop(old)})


HOSTILE: dict[str, tuple[Callable[[Header], None], str]] = {
    "no record": (_drop("__metadata__"), "no identity record"),
    "record is no text": (lambda h: h.update(__metadata__={"kvassay": 3}), "no identity record"),
    "record is no JSON": (lambda h: h.update(__metadata__={"kvassay": "{"}), "not JSON"),
    "record is deep": (lambda h: h.update(__metadata__={"kvassay": "[" * 9999}), "not JSON"),
    "record is a list": (lambda h: h.update(__metadata__={"kvassay": "[]"}), "not a JSON object"),
    "later format": (_record(format=FORMAT + 1), f"format {FORMAT + 1}, this kvassay reads"),
    "unknown field": (_record(extra=1), "no field 'extra'"),
    "no model": (_record(model=...), "model is missing"),
    "model is a number": (_record(model=7), "model is 7, not text"),
    "scale is NaN": (_record(softmax_scale=float("nan")), "softmax_scale is nan"),
    "scale is text": (_record(softmax_scale="1"), "softmax_scale is '1'"),
    "scale is huge": (_record(softmax_scale=1e30), "softmax_scale is 1e"),
    "layers is huge": (_record(layers=2**40), "layers is 1099511627776"),
    "rope is a number": (_record(rope=3), "rope: "),
    "rope lacks its base": (_record(rope={"dims": 32}), "rope: .*base"),
    "made_by is a list": (_record(made_by=[1]), "made_by"),
    "stray tensor": (_renamed("layers.5.v", "weights"), "tensor 'weights'"),
    "layer beyond the model": (_renamed("layers.5.v", "layers.8.v"), "tensor 'layers.8.v'"),
    "missing values": (_drop("layers.5.v"), "layers.5.v is missing"),
    "nothing at all": (_drop(*ALL), "no tensor"),
    "integers": (_tensor("layers.0.k", dtype="I32"), "dtype 'I32'"),
    "bfloat16": (_tensor("layers.0.k", dtype="BF16"), "dtype 'BF16'.*convert"),
    "dtype is a list": (_tensor("layers.0.k", dtype=["F32"]), "dtype"),
    "two axes": (_tensor("layers.0.k", shape=[40, 32]), "shape"),
    "shape of text": (_tensor("layers.0.k", shape=["20", 2, 32]), "shape"),
    "shape of booleans": (_tensor("layers.0.k", shape=[20, True, 64]), "shape"),
    "no token": (_tensor("layers.0.k", shape=[0, 2, 32]), "tokens is 0"),
    "negative heads": (_tensor("layers.0.k", shape=[20, -2, 32]), "heads is -2"),
    "huge shape": (_tensor("layers.0.k", shape=[2**20, 65535, 512]), "bytes, .* are given"),
    "beyond any shape": (_tensor("layers.0.k", shape=[2**62, 2, 32]), "tokens is"),
    "one more token": (_tensor("layers.0.k", shape=[21, 2, 32]), "bytes, .* are given"),
    "other shape": (_tensor("layers.0.k", shape=[10, 4, 32]), r"\(10, 4, 32\)|wanted beside"),
    "overlap": (_tensor("layers.5.v", data_offsets=[0, 5120]), "not sound as a safetensors"),
    "beyond the file": (
        _tensor("layers.5.v", data_offsets=[2**40, 2**40 + 5120]),
        "not sound as a safetensors",
    ),
    "entry is a list": (lambda h: h.update({"layers.0.k": []}), "no description"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused_by_name(name: str, written: Path, tmp_path: Path) -> None:
    change, says = HOSTILE[name]
    header, body = parts(written)
    change(header)
    path = join(tmp_path / "bad.safetensors", header, body)
    with pytest.raises(TensorsError, match=says) as caught:
        open_captured(path)
    assert str(path) in str(caught.value)


def test_files_that_are_none(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    _, body = parts(written)
    bad = tmp_path / "bad"
    for content, says in (
        (b"", "not a safetensors file"),
        (data[:7], "not a safetensors file"),
        (b"\xff" * 100, "not a safetensors file"),
        (data[:300], "not a safetensors file"),
        (data[:-1], "not sound"),
        (data + b"x", "not sound"),
        ((1000).to_bytes(8, "little") + body, "header is not"),
    ):
        bad.write_bytes(content)
        with pytest.raises(TensorsError, match=says):
            open_captured(bad)
    for text in (b"[" * 9000, b"[]", b"\xff\xfe", b"{"):
        with pytest.raises(TensorsError, match="header is not"):
            open_captured(join(bad, text, body))
    with pytest.raises(TensorsError, match="at most"):
        open_captured(join(bad, b" " * (MAX_HEADER + 1), body))
    for missing in (tmp_path / "absent", tmp_path):
        with pytest.raises(TensorsError, match="cannot be read"):
            open_captured(missing)


def test_declared_sizes_allocate_nothing(written: Path, tmp_path: Path) -> None:
    """A terabyte of holes with a header that fits it: refused by its shape, not read."""
    header, _ = parts(written)
    origin = header.pop("__metadata__")
    size = 2**40
    entry = {"dtype": "F32", "shape": [2**20, 512, 512], "data_offsets": [0, size]}
    path = join(tmp_path / "sparse", {"__metadata__": origin, "layers.0.q": entry}, b"")
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size + size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TensorsError, match=r"layers\.0\.k is missing"):
        open_captured(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_bytes_flipped_anywhere_in_the_header_are_refused_or_harmless(
    written: Path, tmp_path: Path
) -> None:
    """Whatever the damage, the error is ours."""
    data = bytearray(written.read_bytes())
    length = int.from_bytes(data[:8], "little")
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(400):
        changed = bytearray(data)
        at = int(rng.integers(8 + length))
        changed[at] ^= 1 << int(rng.integers(8))
        path = tmp_path / "flipped"
        path.write_bytes(changed)
        try:
            open_captured(path).check_values()
        except TensorsError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 65520.0, -1e30])
def test_numbers_that_no_cache_holds_are_named(value: float, tmp_path: Path) -> None:
    bad = layer(3)
    bad.v[17, 1, 9] = value
    path = tmp_path / "nan.safetensors"
    write_captured(path, ORIGIN, {2: layer(2), 3: bad})
    file = open_captured(path)
    for read in (file.check_values, lambda: file.layer(3)):
        with pytest.raises(TensorsError, match=r"layers\.3\.v: token 17, head 1, channel 9"):
            read()
    assert file.layer(3, tokens=17).v.shape == (17, KV_HEADS, HEAD_DIM)
