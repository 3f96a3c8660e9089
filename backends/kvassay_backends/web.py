"""The JavaScript host and the WebAssembly modules, for pages that run them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvassay.web import HOST_NAME, WebAssets

_HERE: Final = Path(__file__).resolve().parent
#: In a wheel, and in a checkout.
_HOSTS: Final = (_HERE / "js", _HERE.parent / "js")

assets: Final = WebAssets(
    host=next((path for path in _HOSTS if (path / HOST_NAME).is_file()), _HOSTS[0]),
    folder=_HERE / "wasm" / "_lib",
    variants=("relaxed", "simd128", "scalar"),
)
