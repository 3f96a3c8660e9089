"""The native backend: the C library of this project, driven through its own header."""

from typing import Final

from .known import NativeBackendProvider
from .provider import LibraryBackendProvider

backend: Final = NativeBackendProvider("native")

__all__ = ["LibraryBackendProvider", "NativeBackendProvider", "backend"]
