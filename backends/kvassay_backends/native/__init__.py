"""The native backend: the C library of this project, driven through its own header."""

from pathlib import Path
from typing import Final

from kvassay.protocol import BackendProvider

from .abi import header_path
from .known import NativeBackendProvider
from .provider import LibraryBackendProvider

backend: Final = NativeBackendProvider("native")


def include_dir() -> Path:
    """The folder of kvassay.h and the headers that go with it; UnavailableError without them."""
    return header_path().parent


def open_library(path: str) -> BackendProvider:
    """The provider of someone's own library."""
    return LibraryBackendProvider(f"library:{path}", Path(path))


__all__ = [
    "LibraryBackendProvider",
    "NativeBackendProvider",
    "backend",
    "include_dir",
    "open_library",
]
