"""What the suite asks of a backend whose caches live in a linear memory, beyond the protocol."""

from __future__ import annotations

from typing import Protocol, cast

import kvassay
from kvassay.errors import InputError
from kvassay.protocol import Cache, Support


class MemoryUse(Protocol):
    """A linear memory: pages of 64 KiB, how often they grew, bytes in use at most, the cap."""

    @property
    def pages(self) -> int: ...
    @property
    def growths(self) -> int: ...
    @property
    def high_water(self) -> int: ...
    @property
    def cap(self) -> int: ...


class OneMemory(Protocol):
    """A backend whose caches follow each other in one linear memory."""

    @property
    def memory_use(self) -> MemoryUse: ...
    @property
    def spent(self) -> int:
        """Instructions executed so far, where they are counted."""
        ...

    def supports(self, spec: kvassay.Spec) -> Support: ...
    def prepare(self, spec: kvassay.Spec, threads: int = 1) -> Cache: ...


class LinearBackend(OneMemory, Protocol):
    """A backend that makes such backends of itself."""

    def in_one_memory(self, max_bytes: int | None = None, metered: bool = False) -> OneMemory: ...


def load_linear(backend: str, variant: str) -> LinearBackend:
    """The backend; InputError if its caches live in no linear memory."""
    loaded = kvassay.load(backend, variant)
    if not hasattr(loaded, "in_one_memory"):
        raise InputError(f"{backend} {variant} offers no in_one_memory: it has no linear memory")
    return cast(LinearBackend, loaded)
