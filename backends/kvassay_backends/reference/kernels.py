"""The pure kernels that the life cycle calls, and the numpy ones.

Kernels own no state: a page is bytes, a layer is a `LayerState`. So the same life cycle runs with
kernels of numpy and with those of somebody's library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from kvassay.spec import Identity, LayerSpec, Spec

from .arithmetic import F16, F32
from .attend import attend, scores
from .encode import Means, seal
from .transform import KEYS, SIGNS, VALUES, Transform

if TYPE_CHECKING:
    from .layer import LayerState

VARIANT = "scalar"


class Page(Protocol):
    """A sealed page, wherever it is kept: bytes, or what stands for them."""

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...


class Kernels(ABC):
    """What computes for the caches of one spec."""

    @property
    def table_bytes(self) -> int:
        """Bytes of tables made from the spec, shared by all caches of a lineage."""
        return 0

    @property
    @abstractmethod
    def ran(self) -> tuple[str, ...]:
        """The variants that have computed something."""

    def hold(self, page: bytes) -> Page:
        """A checked page of a dump, as `seal` would give it."""
        return page

    @abstractmethod
    def seal(
        self,
        spec: LayerSpec,
        means: Means,
        keys: F16,
        values: F16,
        layer: int,
        token_start: int,
        identity: Identity | None,
    ) -> Page:
        """The page of keys and values (kv_heads, page_tokens, head_dim)."""

    @abstractmethod
    def attend(self, state: LayerState, q: F32) -> tuple[F32, int]:
        """Outputs for q (n, query_heads, head_dim), and how many heads of pages were read."""

    @abstractmethod
    def scores(self, state: LayerState, q: F32) -> tuple[F32, int]:
        """Logits (query_heads, tokens) of q (query_heads, head_dim), and heads of pages read."""


def transforms_of(spec: Spec) -> dict[int, Transform]:
    """The transforms that some layer of the spec uses."""
    layers = spec.layer_specs
    needed = {
        KEYS: any(layer.keys.rotated for layer in layers),
        VALUES: any(layer.values.rotated for layer in layers),
        SIGNS: any(layer.keys.qjl for layer in layers),
    }
    return {
        stream: Transform(spec.head_dim, spec.rounds, spec.seed, stream)
        for stream, used in needed.items()
        if used
    }


class NumpyKernels(Kernels):
    """The numeric contract in numpy."""

    def __init__(self, spec: Spec) -> None:
        self.transforms = transforms_of(spec)
        arrays = (transform.arrays() for transform in self.transforms.values())
        self._table_bytes = sum(array.nbytes for group in arrays for array in group)

    @property
    def table_bytes(self) -> int:
        return self._table_bytes

    @property
    def ran(self) -> tuple[str, ...]:
        return (VARIANT,)

    def seal(
        self,
        spec: LayerSpec,
        means: Means,
        keys: F16,
        values: F16,
        layer: int,
        token_start: int,
        identity: Identity | None,
    ) -> bytes:
        return seal(spec, self.transforms, means, keys, values, layer, token_start, identity)

    def attend(self, state: LayerState, q: F32) -> tuple[F32, int]:
        return attend(state, self.transforms, q)

    def scores(self, state: LayerState, q: F32) -> tuple[F32, int]:
        return scores(state, self.transforms, q)
