"""The orthogonal transform: signs, Hadamard blocks, one permutation (section 4).

Every block has a power of two of channels that divides the head dim, so exactly d coordinates are
kept for every head dim; two rounds with a permutation between them mix the blocks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .arithmetic import F32, single

KEYS: Final = 0
VALUES: Final = 1
SIGNS: Final = 2

_MASK: Final = (1 << 64) - 1


class SplitMix64:
    """The pinned generator: stream `t` of a seed gives the same 64-bit numbers everywhere."""

    def __init__(self, seed: int, stream: int) -> None:
        self._state = _mix(seed ^ (0xD1B54A32D192ED03 * (stream + 1) & _MASK))

    def next(self) -> int:
        """The next number, 0 .. 2^64 - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return _mix(self._state)


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def draw_signs(generator: SplitMix64, d: int) -> F32:
    """d signs as +1 or -1, 64 from each number, lowest bit first."""
    numbers = [generator.next() for _ in range(-(-d // 64))]
    negative = [numbers[c // 64] >> c % 64 & 1 for c in range(d)]
    return np.where(negative, np.float32(-1), np.float32(1))


def draw_permutation(generator: SplitMix64, d: int) -> NDArray[np.intp]:
    """A permutation of d channels (Fisher-Yates from the end)."""
    perm = list(range(d))
    for i in range(d - 1, 0, -1):
        j = (generator.next() >> 32) * (i + 1) >> 32
        perm[i], perm[j] = perm[j], perm[i]
    return np.array(perm, np.intp)


def hadamard(x: F32, block: int) -> F32:
    """Unnormalised Walsh-Hadamard transform of every block of channels of the last axis."""
    last = x.ndim - 1
    y = np.ascontiguousarray(x.transpose(last, *range(last)))  # numpy is slow along short axes
    h = 1
    while h < block:
        pairs = y.reshape(-1, 2, h, *y.shape[1:])
        a, b = pairs[:, 0], pairs[:, 1]
        out = np.empty_like(pairs)
        np.add(a, b, out=out[:, 0])
        np.subtract(a, b, out=out[:, 1])
        y = single(out).reshape(y.shape)
        h *= 2
    return y.transpose(*range(1, x.ndim), 0)


class Transform:
    """T and its transpose for one stream of a seed: `inverse(forward(x)) == 2^exponent * x` but
    for rounding."""

    def __init__(self, d: int, rounds: int, seed: int, stream: int) -> None:
        generator = SplitMix64(seed, stream)
        self.block = d & -d
        self.s1 = draw_signs(generator, d)
        self.perm: NDArray[np.intp] | None = None
        self.s2: F32 | None = None
        if rounds == 2:
            self.perm = draw_permutation(generator, d)
            self.s2 = draw_signs(generator, d)
        self.exponent = gain_exponent(d, rounds)

    def forward(self, x: F32) -> F32:
        """T(x) over the last axis."""
        y = hadamard(single(self.s1 * x), self.block)
        if self.perm is None or self.s2 is None:
            return y
        return hadamard(single(self.s2 * y[..., self.perm]), self.block)

    def inverse(self, y: F32) -> F32:
        """T'(y) over the last axis: the transpose, not yet divided by 2^exponent."""
        if self.perm is not None and self.s2 is not None:
            scattered = np.empty_like(y)
            scattered[..., self.perm] = single(self.s2 * hadamard(y, self.block))
            y = scattered
        return single(self.s1 * hadamard(y, self.block))

    def arrays(self) -> list[NDArray[np.generic]]:
        """What a cache that holds this transform is billed for."""
        return [array for array in (self.s1, self.perm, self.s2) if array is not None]


def gain_exponent(d: int, rounds: int) -> int:
    """E: T T' = 2^E times the identity."""
    return rounds * ((d & -d).bit_length() - 1)


def store_gain(exponent: int) -> np.float32:
    """The part of the gain that stored scales take: 2^-ceil(E/2)."""
    return np.float32(2.0 ** -((exponent + 1) // 2))


def read_gain(exponent: int) -> np.float32:
    """The part that readers take: 2^-floor(E/2)."""
    return np.float32(2.0 ** -(exponent // 2))
