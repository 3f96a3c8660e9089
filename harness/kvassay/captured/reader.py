"""Reading a file of captured tensors that anybody may have written.

Sizes first: the length of the header is held to a limit and to the file's, and every shape to the
bytes that are there, before anything of that size is read. The package safetensors then parses the
same bytes by its own rules.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from kvassay.captured.provenance import KEY, Provenance
from kvassay.errors import TensorsError
from kvassay.protocol import FloatArray
from kvassay.spec import MAX_HEAD_DIM

#: A header this long names ten thousand tensors; the longest that is read.
MAX_HEADER: Final = 2**20
MAX_TOKENS: Final = 2**20
#: What fp16 holds; keys and values beyond it no cache of this project accepts.
MAX_MAGNITUDE: Final = 65504.0
_NAME: Final = re.compile(r"layers\.(0|[1-9]\d{0,4})\.([qkv])")
_BYTES: Final = {"F32": 4, "F16": 2}
_ROWS: Final = 1024


@dataclass(frozen=True)
class Layer:
    """Post-RoPE tensors of one layer: q (tokens, query_heads, head_dim), k and v with KV heads."""

    q: FloatArray
    k: FloatArray
    v: FloatArray


@dataclass(frozen=True)
class CapturedFile:
    """What a file of captured tensors says it holds; `layer` reads.

    layers: numbers of the layers in it. tokens, query_heads, kv_heads, head_dim: the same for all.
    """

    path: Path
    provenance: Provenance
    layers: tuple[int, ...]
    tokens: int
    query_heads: int
    kv_heads: int
    head_dim: int

    def layer(self, number: int, tokens: int | None = None) -> Layer:
        """The first so many tokens of a layer, float32; TensorsError for NaN, infinity and what
        fp16 cannot hold."""
        count = self.tokens if tokens is None else min(tokens, self.tokens)
        with _opened(self.path) as file:
            parts = []
            for part in "qkv":
                name = f"layers.{number}.{part}"
                array = np.ascontiguousarray(file.get_slice(name)[:count], dtype=np.float32)
                _check_values(self.path, name, array)
                parts.append(array)
        return Layer(*parts)

    def check_values(self) -> None:
        """Read everything once; raises TensorsError as `layer` does."""
        with _opened(self.path) as file:
            for number in self.layers:
                for part in "qkv":
                    name = f"layers.{number}.{part}"
                    rows = file.get_slice(name)
                    for first in range(0, self.tokens, _ROWS):
                        end = min(first + _ROWS, self.tokens)
                        _check_values(self.path, name, rows[first:end], first)

    @property
    def digest(self) -> str:
        """Hex sha256 of the file."""
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def open_captured(path: str | os.PathLike[str]) -> CapturedFile:
    """Read and check the header of a file; TensorsError says what is wrong with it."""
    found = Path(path)
    entries = _header(found)
    metadata = entries.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(KEY), str):
        raise TensorsError(
            f"{found}: no identity record (metadata entry {KEY!r}); docs/captured.md says what "
            f"belongs into it"
        )
    try:
        provenance = Provenance.from_json(metadata[KEY])
    except TensorsError as error:
        raise TensorsError(f"{found}: {error}") from None
    shapes = _shapes(found, entries, provenance.layers)
    with _opened(found):  # by the rules of safetensors: no holes, no overlaps, nothing behind
        pass
    tokens, query_heads, kv_heads, head_dim = _common(found, shapes)
    return CapturedFile(
        found, provenance, tuple(sorted(shapes)), tokens, query_heads, kv_heads, head_dim
    )


def _header(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise TensorsError(
                    f"{path}: not a safetensors file: {size} bytes, of which a header of {length}"
                )
            if length > MAX_HEADER:
                raise TensorsError(
                    f"{path}: a header of {length} bytes; at most {MAX_HEADER} are read"
                )
            text = stream.read(length)
    except OSError as error:
        raise TensorsError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TensorsError(f"{path}: the safetensors header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise TensorsError(f"{path}: the safetensors header is not a JSON object")
    return header


Shape = tuple[int, int, int]


def _shapes(path: Path, entries: Mapping[str, Any], layers: int) -> dict[int, dict[str, Shape]]:
    """Shape of q, k and v by layer; every declared size is held to the bytes given to it."""
    found: dict[int, dict[str, Shape]] = {}
    for name, entry in entries.items():
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) >= layers:
            raise TensorsError(
                f"{path}: tensor {name!r}; only layers.N.q, layers.N.k and layers.N.v with N "
                f"below {layers} belong into it"
            )
        found.setdefault(int(match[1]), {})[match[2]] = _shape(path, name, entry)
    if not found:
        raise TensorsError(f"{path}: no tensor")
    for number, parts in found.items():
        if missing := [part for part in "qkv" if part not in parts]:
            raise TensorsError(f"{path}: layers.{number}.{missing[0]} is missing")
    return found


def _shape(path: Path, name: str, entry: Any) -> Shape:
    where = f"{path}: {name}"
    if not isinstance(entry, dict):
        raise TensorsError(f"{where}: no description of a tensor")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BYTES:
        raise TensorsError(f"{where}: dtype {dtype!r}; F32 and F16 are read: convert it")
    if not _integers(shape, 3) or not _integers(place, 2):
        raise TensorsError(
            f"{where}: shape {shape!r} at {place!r}; (tokens, heads, head_dim) wanted"
        )
    for axis, size, most in zip(
        ("tokens", "heads", "head_dim"), shape, (MAX_TOKENS, 65535, MAX_HEAD_DIM), strict=True
    ):
        if not 1 <= size <= most:
            raise TensorsError(f"{where}: {axis} is {size}, not 1 .. {most}")
    if math.prod(shape) * _BYTES[dtype] != place[1] - place[0]:
        raise TensorsError(
            f"{where}: shape {tuple(shape)} of {dtype} is {math.prod(shape) * _BYTES[dtype]} "
            f"bytes, {place[1] - place[0]} are given to it"
        )
    return shape[0], shape[1], shape[2]


def _integers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    )


def _common(path: Path, shapes: Mapping[int, Mapping[str, Shape]]) -> tuple[int, int, int, int]:
    """Tokens, query heads, KV heads and head dim, the same in every layer."""
    first = min(shapes)
    (tokens, query_heads, head_dim), (_, kv_heads, _) = shapes[first]["q"], shapes[first]["k"]
    wanted = {
        "q": (tokens, query_heads, head_dim),
        "k": (tokens, kv_heads, head_dim),
        "v": (tokens, kv_heads, head_dim),
    }
    for number, parts in shapes.items():
        for part, shape in parts.items():
            if shape != wanted[part]:
                raise TensorsError(
                    f"{path}: layers.{number}.{part} is {shape}, {wanted[part]} wanted beside "
                    f"layers.{first}"
                )
    if query_heads % kv_heads:
        raise TensorsError(f"{path}: {query_heads} query heads for {kv_heads} KV heads")
    if head_dim % 16:
        raise TensorsError(f"{path}: head_dim is {head_dim}, not a multiple of 16")
    return tokens, query_heads, kv_heads, head_dim


def _check_values(path: Path, name: str, array: Any, first: int = 0) -> None:
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(array) <= MAX_MAGNITUDE)
    if bad.any():
        token, head, channel = (int(at[0]) for at in np.nonzero(bad))
        value = float(array[token, head, channel])
        raise TensorsError(
            f"{path}: {name}: token {token + first}, head {head}, channel {channel} is {value}; "
            f"finite numbers up to {MAX_MAGNITUDE:g} are wanted"
        )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise TensorsError(f"{path}: not sound as a safetensors file: {error}") from None
