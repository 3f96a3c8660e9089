"""Backends whose caches store a format that is not this project's: no page, no spec of ours.

Such a backend is judged by the suite `foreign` (docs/foreign.md): against its own codec, read by a
reference in Python, and against full precision.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..errors import UnsupportedError
from ..protocol import Backend, Cache, FloatArray, Support
from ..spec import Spec


@dataclass(frozen=True)
class OwnFormat:
    """What a stored vector becomes: names of `kvassay.codecs` that say so in Python, for keys and
    values, and their bits.

    bound: how far attention may be from exact attention over what those codecs decode, as relative
    RMS: what its own arithmetic may add. hadamard: channels in each block of an orthonormal
    Hadamard transform that keys and values go through before they are stored, where the head dim
    is a multiple of it; 0 for none.
    """

    #: The suite that judges it.
    suite: ClassVar[str] = "foreign"

    keys: str
    values: str
    bits: float
    bound: float
    hadamard: int = 0


def turned(x: FloatArray, block: int) -> FloatArray:
    """The orthonormal Hadamard transform of blocks of so many channels, a power of two; its own
    inverse. Leaves x alone where `block` is 0 or does not divide its channels."""
    if not block or x.shape[-1] % block:
        return x
    y = x.copy()
    index = np.arange(x.shape[-1])
    h = 1
    while h < block:
        low = index[(index & h) == 0]
        a, b = y[..., low], y[..., low + h]
        y[..., low], y[..., low + h] = a + b, a - b
        h *= 2
    return y * np.float32(block**-0.5)


class OwnCache(Protocol):
    """What the suite needs of a cache: one sequence, arrays as in `kvassay.Cache`."""

    def append(self, layer: int, k: FloatArray, v: FloatArray, /) -> None:
        """Append tokens: float32 (tokens, kv_heads, head_dim), keys after RoPE."""

    def attend(self, layer: int, q: FloatArray, /) -> FloatArray:
        """Attention of (query_heads, head_dim) over everything appended; same shape."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of the keys and values held, everything that decoding needs counted."""

    def close(self) -> None:
        """Release memory."""


class OwnFormatBackend(Backend):
    """A backend with formats of its own; it executes no spec of this project."""

    exact = False

    @property
    @abstractmethod
    def formats(self) -> Mapping[str, OwnFormat]:
        """Its formats by name."""

    @abstractmethod
    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> OwnCache:
        """An empty cache of that format: layers, heads, head dim and softmax scale of `shape`.

        Raises UnsupportedError for a shape that `supports_own` says it does not have.
        """

    def supports_own(self, name: str, shape: Spec) -> Support:
        """Whether that format has the heads and head dim of `shape`, and why not; yes unless a
        backend says otherwise. What it refuses stands in the verdict; a refusal that is not said
        here, or not why, is held against it."""
        return Support(True)

    def supports(self, spec: Spec) -> Support:
        """Never: its formats are its own."""
        return Support(False, f"{self.name} stores formats of its own: kvassay foreign")

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        """Refused: see `prepare_own`."""
        raise UnsupportedError(self.supports(spec).reason)

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        """Refused: such a backend has no dumps of this project."""
        raise UnsupportedError(self.supports(spec).reason)
