"""The WebAssembly backend: the same C sources as modules, run by wasmtime."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvassay.protocol import BackendProvider

from .provider import OneModuleProvider, WasmBackendProvider

backend: Final = WasmBackendProvider("wasm")


def open_module(path: str) -> BackendProvider:
    """The provider of someone's own module."""
    return OneModuleProvider(Path(path))


__all__ = ["OneModuleProvider", "WasmBackendProvider", "backend", "open_module"]
