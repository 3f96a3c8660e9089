"""The Rust backend: the crates of `backends/src/rust`, driven like any library of the C ABI."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

from kvassay.errors import UnavailableError

from ..native import LibraryBackendProvider
from .build_info import LIBRARY_DIR, build_record, not_built_reason


class RustBackendProvider(LibraryBackendProvider):
    """The variants of the library that cargo built, best first."""

    on_request = True

    @cached_property
    def _located(self) -> tuple[Path, str | None]:
        if reason := not_built_reason():
            raise UnavailableError(reason)
        record = build_record()
        assert record is not None
        return LIBRARY_DIR / record["library"], record["build_id"]


backend: Final = RustBackendProvider("rust")

__all__ = ["RustBackendProvider", "backend"]
