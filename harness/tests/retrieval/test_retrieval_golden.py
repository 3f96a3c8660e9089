"""The checksums in the C test program are those of the reference scorer on the same inputs."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from vectors import F32

from kvassay.retrieval import Affine, Scorer, VectorCode, load_scorer
from kvassay.retrieval.store import Store

VECTORS, ROWS, QUERIES = 300, 304, 21
PROGRAM = Path(__file__).parents[3] / "backends" / "src" / "tests" / "retrieval.c"
ENTRY = re.compile(r"\{(\d+), (\d), ([0-2]), (0x[0-9a-f]{8})\}")
SHAPES = [(*map(int, found[:3]), int(found[3], 16)) for found in ENTRY.findall(PROGRAM.read_text())]


class Draw:
    """The stream of numbers of the C tests."""

    def __init__(self, seed: int) -> None:
        self._state = np.uint64(seed)

    def floats(self, *shape: int) -> F32:
        count = int(np.prod(shape))
        gamma = np.uint64(0x9E3779B97F4A7C15)
        z: NDArray[np.uint64] = self._state + gamma * np.arange(1, count + 1, dtype=np.uint64)
        self._state = z[-1]
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        numbers = (z >> np.uint64(40)).astype(np.int64) - (1 << 23)
        return (numbers * 2.0**-23).astype(np.float32).reshape(shape)


def inputs(draw: Draw, dim: int) -> tuple[F32, F32]:
    x = draw.floats(VECTORS, dim)
    row = np.arange(VECTORS)
    x[row % 7 == 3] = 0
    scaled = row % 5 == 1
    x[scaled] *= np.exp2(row[scaled] % 21 - 10).astype(np.float32)[:, np.newaxis]
    x[row % 11 == 5] = x[0]
    q = draw.floats(QUERIES, dim)
    q[1:4] = 0
    q[1, dim // 2] = 1
    q[2] = 1
    return x, q


def checksum(scorer: Scorer, dim: int, bits: int, calibrated: int) -> int:
    code, draw = VectorCode(dim, bits, dim), Draw(dim * 8 + bits)
    x, q = inputs(draw, dim)
    shift = draw.floats(code.channels) * np.float32(0.25)
    gain = 1 + np.float32(0.5) * draw.floats(code.channels)
    affine = Affine(shift, None if calibrated == 2 else gain) if calibrated else None
    codes, scales = scorer.encode(code, affine, x)
    store = Store(code)
    store.append(codes, scales)
    stored = store.stored
    assert len(stored.scales) == ROWS
    scores, rows = scorer.search(code, affine, stored, q, VECTORS, None)
    filled = crc(scorer.rotate(code, x), codes, stored.scales, stored.tiles)
    return crc(np.array([filled, crc(scores, rows)], "<u4"))


def crc(*arrays: NDArray[Any]) -> int:
    total = 0
    for array in arrays:
        total = zlib.crc32(array.tobytes(), total)
    return total


@pytest.mark.parametrize(("dim", "bits", "calibrated", "golden"), SHAPES)
def test_checksums(dim: int, bits: int, calibrated: int, golden: int) -> None:
    assert checksum(load_scorer("reference"), dim, bits, calibrated) == golden


def test_the_program_has_every_number_of_bits_slabs_and_calibrations() -> None:
    assert len(SHAPES) == 9
    assert {bits for _, bits, _, _ in SHAPES} == {2, 3, 4}
    assert {VectorCode(dim, bits).slabs for dim, bits, _, _ in SHAPES} == {1, 2, 3}
    assert {calibrated for _, _, calibrated, _ in SHAPES} == {0, 1, 2}
