"""What caches of one spec have in common: kernels, and the bytes of a pool within its limit."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvassay.errors import CacheMemoryError
from kvassay.spec import Spec

from .kernels import Kernels, NumpyKernels, Page
from .layer import LayerState

if TYPE_CHECKING:
    from .cache import ReferenceCache


class Lineage:
    """Caches that may adopt each other's pages. Counts nothing: forks of a lone cache."""

    def __init__(self, spec: Spec, kernels: Kernels | None = None) -> None:
        self.kernels = kernels or NumpyKernels(spec)

    @property
    def table_bytes(self) -> int:
        """Bytes of tables that the kernels made from the spec."""
        return self.kernels.table_bytes

    def join(self, cache: ReferenceCache, states: list[LayerState]) -> None:
        """A new member; `states` stays the list of its layers."""

    def exchange(self, old: Iterable[LayerState], new: Iterable[LayerState]) -> None:
        """Some layers of a member are about to be replaced."""

    def recount(self) -> None:
        """An exchange was interrupted: it may not have happened."""


class CountedLineage(Lineage):
    """The members of a pool: every page is counted once, fp16 tokens by the memory they have."""

    def __init__(self, spec: Spec, limit: int | None, kernels: Kernels | None = None) -> None:
        super().__init__(spec, kernels)
        self.limit = limit
        self.used = self.reserved = 0
        self._holders: dict[int, int] = {}
        self._lock = threading.RLock()
        self._members: weakref.WeakKeyDictionary[ReferenceCache, list[LayerState]]
        self._members = weakref.WeakKeyDictionary()

    def join(self, cache: ReferenceCache, states: list[LayerState]) -> None:
        self._members[cache] = states
        weakref.finalize(cache, self.exchange, states, ())

    def recount(self) -> None:
        with self._lock:
            self.used = self.reserved = 0
            self._holders = {}
            for states in list(self._members.values()):
                self._count(states, 1)

    def exchange(self, old: Iterable[LayerState], new: Iterable[LayerState]) -> None:
        """Count them; CacheMemoryError, and no change, where the new ones do not fit."""
        with self._lock:
            before = self.used, self.reserved
            self._count(new, 1)
            self._count(old, -1)
            grows = sum(before) < self.used + self.reserved
            held = self.used + self.reserved + self.table_bytes
            if self.limit is not None and grows and held > self.limit:
                self._count(old, 1)
                self._count(new, -1)
                raise CacheMemoryError(
                    f"reference: the pool holds {sum(before) + self.table_bytes} of at most "
                    f"{self.limit} bytes and has no room for {held - self.limit} of them; close "
                    f"caches or raise the limit; this one is as it was"
                )

    def _count(self, states: Iterable[LayerState], sign: int) -> None:
        for state in states:
            parts = state.nbytes()
            pages = sum(len(page) for page in state.pages)
            rows = sum(parts[name] for name in ("sinks", "residual"))
            means = (state.means.keys, state.means.values)
            self.used += sign * (rows + sum(mean.nbytes for mean in means if mean is not None))
            self.reserved += sign * parts["reserved"]
            if pages:
                self._count_pages(state.pages, sign)

    def _count_pages(self, pages: Iterable[Page], sign: int) -> None:
        for page in pages:
            holders = self._holders.get(id(page), 0) + sign
            if holders == max(0, sign):
                self.used += sign * len(page)
            if holders:
                self._holders[id(page)] = holders
            else:
                del self._holders[id(page)]
