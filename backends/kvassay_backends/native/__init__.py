"""The native backend: the C library of this project, driven through its own header."""

from typing import Final

from .provider import LibraryBackendProvider

backend: Final = LibraryBackendProvider("native")

__all__ = ["LibraryBackendProvider", "backend"]
