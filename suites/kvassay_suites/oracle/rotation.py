"""The transform as a dense orthogonal matrix (docs/numeric-contract.md, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

MASK: Final = 2**64 - 1
KEYS, VALUES, SIGNS = 0, 1, 2


def mix(state: int) -> int:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draws(seed: int, stream: int) -> Iterator[int]:
    """The SplitMix64 numbers of one stream of a seed."""
    state = mix(seed ^ ((0xD1B54A32D192ED03 * (stream + 1)) & MASK))
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        yield mix(state)


def _signs(numbers: Iterator[int], d: int) -> NDArray[np.float64]:
    words = [next(numbers) for _ in range((d + 63) // 64)]
    bits = [(words[c // 64] >> (c % 64)) & 1 for c in range(d)]
    return 1.0 - 2.0 * np.array(bits, dtype=np.float64)


def _permutation(numbers: Iterator[int], d: int) -> list[int]:
    order = list(range(d))
    for i in range(d - 1, 0, -1):
        j = ((next(numbers) >> 32) * (i + 1)) >> 32
        order[i], order[j] = order[j], order[i]
    return order


def block_size(d: int) -> int:
    """The largest power of two dividing d."""
    return d & -d


def gain_exponent(d: int, rounds: int) -> int:
    """E of T T' = 2^E I."""
    return rounds * (block_size(d).bit_length() - 1)


def _hadamard(d: int) -> NDArray[np.float64]:
    """Orthonormal block-diagonal Hadamard matrix: the sign is the parity of `row & column`."""
    index = np.arange(d)
    block = block_size(d)
    parity = np.bitwise_count((index[:, None] & index[None, :]) % block) % 2
    same = index[:, None] // block == index[None, :] // block
    out: NDArray[np.float64] = np.where(same, 1.0 - 2.0 * parity, 0.0) / np.sqrt(block)
    return out


def transform_tables(
    numbers: Iterator[int], d: int, rounds: int
) -> tuple[NDArray[np.float64], list[int], NDArray[np.float64]]:
    """Signs, permutation and second signs of a transform, in the order they are drawn; with one
    round the identity and ones stand for the latter two."""
    first = _signs(numbers, d)
    if rounds == 1:
        return first, list(range(d)), np.ones(d)
    order = _permutation(numbers, d)
    return first, order, _signs(numbers, d)


@lru_cache(maxsize=64)
def rotation(d: int, seed: int, stream: int, rounds: int) -> NDArray[np.float64]:
    """The orthogonal (d, d) matrix U with U x = T(x) / 2^(E/2). Read-only."""
    first, order, second = transform_tables(draws(seed, stream), d, rounds)
    hadamard = _hadamard(d)
    matrix = hadamard * first[None, :]
    if rounds == 2:
        matrix = hadamard @ (second[:, None] * matrix[order])
    matrix.setflags(write=False)
    return matrix
