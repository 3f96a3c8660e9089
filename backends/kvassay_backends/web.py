"""The JavaScript host and the WebAssembly modules, for pages that run them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvassay.assets.web import WebAssets

_HERE: Final = Path(__file__).resolve().parent

assets: Final = WebAssets(
    host=_HERE / "js",
    folder=_HERE / "wasm" / "_lib",
    variants=("relaxed", "simd128", "scalar"),
)
