"""The Rust backend: the crates of `backends/src/rust`, driven like any library of the C ABI."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from kvassay.errors import UnavailableError
from kvassay.protocol import Availability, Backend

from ..emulated import provider as emulated
from ..native import LibraryBackendProvider
from . import build_info
from .build_info import LIBRARY_DIR, build_record, not_built_reason

#: The library for aarch64; its variants are those of the C library.
SERVER: Final = emulated.Server(
    build_info.SERVER_DIR, build_info.server_record, build_info.server_not_built_reason
)
#: Said of AVX-512, whose kernels the crate's tests also run through an emulation of its intrinsics.
EMULATED_AVX512: Final = "logic compared in plain Rust: cargo test with --cfg kvassay_emulate"


class RustBackendProvider(LibraryBackendProvider):
    """The variants of the library that cargo built, best first, then those of other machines."""

    on_request = True

    def variants(self) -> Mapping[str, Availability]:
        return {
            name: _with_note(name, state)
            for name, state in {**super().variants(), **self._foreign}.items()
        }

    def load(self, variant: str) -> Backend:
        if variant in self._foreign:
            return emulated.load(self.name, variant, SERVER)
        return super().load(variant)

    @cached_property
    def _foreign(self) -> Mapping[str, Availability]:
        return emulated.foreign_variants(SERVER)

    @cached_property
    def _located(self) -> tuple[Path, str | None]:
        if reason := not_built_reason():
            raise UnavailableError(reason)
        record = build_record()
        assert record is not None
        return LIBRARY_DIR / record["library"], record["build_id"]


def _with_note(name: str, state: Availability) -> Availability:
    if name.startswith("avx512") and state.status == "unsupported-cpu":
        return Availability(state.status, f"{state.reason}; {EMULATED_AVX512}")
    return state


backend: Final = RustBackendProvider("rust")

__all__ = ["RustBackendProvider", "backend"]
