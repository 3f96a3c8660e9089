"""The native backend: the C library of this project, driven through its own header."""

from pathlib import Path
from typing import Final

from kvassay.protocol import BackendProvider

from .known import NativeBackendProvider
from .provider import LibraryBackendProvider

backend: Final = NativeBackendProvider("native")


def open_library(path: str) -> BackendProvider:
    """The provider of someone's own library."""
    return LibraryBackendProvider(f"library:{path}", Path(path))


__all__ = ["LibraryBackendProvider", "NativeBackendProvider", "backend", "open_library"]
