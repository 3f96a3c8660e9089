"""Orthogonal matrices that spread a vector's energy over its channels.

All are d x d and exactly orthogonal, so d coordinates are stored whatever d. They are kept as
matrices: these codecs are compared for what they store, not for speed (kvassay's own transform
runs as butterflies in the backends). Their random numbers come from a stream of their own, so that
data made from the same seed stays independent of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from scipy.linalg import block_diag, hadamard

from kvassay.errors import SpecError

from .base import F32, F64

_STREAM: Final = 0x524F54  # "ROT"
#: Orders that head dims need, and the primes from which Paley's constructions make them (1933):
#: order = prime + 1 where the prime is 3 modulo 4, order = 2 (prime + 1) where it is 1.
_PALEY: Final = {12: 11, 20: 19, 28: 13, 36: 17, 44: 43, 60: 59, 104: 103}

KINDS: Final = ("dense", "one-round", "two-rounds", "paley", "turbovec", "hadamard", "none")


def generator(seed: int, *path: int) -> np.random.Generator:
    """The random stream of a transform."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((_STREAM, seed, *path))))


@lru_cache(maxsize=64)
def rotation(kind: str, d: int, seed: int = 0) -> F32:
    """R of shape (d, d), float32, rows orthonormal: y = x @ R.T and x = y @ R.

    dense: Haar, from a QR factorization. one-round: signs, then Hadamard. two-rounds: twice signs
    and Hadamard, with a permutation between. turbovec: twice permutation, signs and Hadamard. Where
    d is no power of two, Hadamard is blocks of the largest power of two that divides d. hadamard:
    a Hadamard matrix of order d, without signs. paley: twice signs and that matrix. Raises
    SpecError for an order that does not exist.
    """
    random = generator(seed, d, KINDS.index(kind))
    if kind == "none":
        return np.eye(d, dtype=np.float32)
    if kind == "dense":
        return _haar(random, d).astype(np.float32)
    if kind == "hadamard":
        return _full(d).astype(np.float32)
    if kind == "paley":
        parts = [_full(d), _signs(random, d), _full(d), _signs(random, d)]
    elif kind == "one-round":
        parts = [_blocks(d), _signs(random, d)]
    elif kind == "two-rounds":
        first, perm = _signs(random, d), _permutation(random, d)
        parts = [_blocks(d), _signs(random, d), perm, _blocks(d), first]
    else:
        rounds = [[_blocks(d), _signs(random, d), _permutation(random, d)] for _ in range(2)]
        parts = rounds[1] + rounds[0]
    return np.asarray(np.linalg.multi_dot(parts), np.float32)


def _haar(random: np.random.Generator, d: int) -> F64:
    """QR of a Gaussian matrix, signs fixed so that the distribution is Haar (Mezzadri 2007)."""
    q, r = np.linalg.qr(random.standard_normal((d, d)))
    return np.asarray(q * np.sign(np.diag(r)))


def _signs(random: np.random.Generator, d: int) -> F64:
    return np.diag(random.choice([-1.0, 1.0], d))


def _permutation(random: np.random.Generator, d: int) -> F64:
    return np.eye(d)[random.permutation(d)]


def _blocks(d: int) -> F64:
    block = d & -d
    return np.asarray(block_diag(*[hadamard(block) / np.sqrt(block)] * (d // block)))


def _full(d: int) -> F64:
    """A Hadamard matrix of order d over sqrt(d)."""
    odd = d // (d & -d)
    if odd == 1:
        return np.asarray(hadamard(d) / np.sqrt(d))
    order = next((n for n in _PALEY if n % odd == 0 and d % n == 0), None)
    if order is None:
        raise SpecError(
            f"rotation: no Hadamard matrix of order {d} is built here (powers of two times 1, 12, "
            f"20, 28, 36, 44, 60 or 104 are); use 'two-rounds', which exists for every head dim"
        )
    return np.asarray(np.kron(_paley(_PALEY[order]), hadamard(d // order)) / np.sqrt(d))


def _paley(prime: int) -> F64:
    """Hadamard matrix of order prime + 1, or 2 (prime + 1), by quadratic residues."""
    residues = {i * i % prime for i in range(1, prime)}
    character = np.array([0.0] + [1.0 if i in residues else -1.0 for i in range(1, prime)])
    shifts = (np.arange(prime) - np.arange(prime)[:, np.newaxis]) % prime
    core, eye = np.zeros((prime + 1, prime + 1)), np.eye(prime + 1)
    core[1:, 1:] = character[shifts]
    core[0, 1:] = 1
    if prime % 4 == 3:
        core[1:, 0] = -1
        return core + eye
    core[1:, 0] = 1
    return np.asarray(np.block([[core + eye, core - eye], [core - eye, -core - eye]]))
