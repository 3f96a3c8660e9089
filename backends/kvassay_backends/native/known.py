"""The backend `native`: every variant of this project's library, wherever it can run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from kvassay.protocol import Availability, Backend

from ..emulated import provider as emulated
from .provider import LibraryBackendProvider

#: Said of variants whose kernels the C tests also run through an emulation of the intrinsics.
SIMDE = "logic emulated through SIMDe: C kernel tests only"


class NativeBackendProvider(LibraryBackendProvider):
    """This machine's variants, best first, then those of others, emulated where possible."""

    def variants(self) -> Mapping[str, Availability]:
        found = {name: _with_note(name, state) for name, state in super().variants().items()}
        return {**found, **self._foreign}

    def load(self, variant: str) -> Backend:
        if variant in self._foreign:
            return emulated.load(self.name, variant)
        return super().load(variant)

    @cached_property
    def _foreign(self) -> Mapping[str, Availability]:
        """Found out once: to compare a build with its sources, every file of them is read."""
        return emulated.foreign_variants()


def _with_note(name: str, state: Availability) -> Availability:
    if state.status == "unsupported-cpu" and name.startswith("avx512"):
        return Availability(state.status, f"{state.reason}; {SIMDE}")
    return state
