"""What a web page needs of a backend: the JavaScript host and the WebAssembly modules.

Found through the entry point group `kvassay.web`, named as the backend whose modules they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..plugins import WEB, loaded


@dataclass(frozen=True)
class WebAssets:
    """Files of a backend. `host` is the folder of the JavaScript host, which has `kvassay.mjs`;
    `folder` holds a module `kvassay-VARIANT.wasm` for each of `variants` that was built.
    """

    host: Path
    folder: Path
    variants: tuple[str, ...]

    @property
    def modules(self) -> Mapping[str, Path]:
        """The modules that are there, by variant, best first."""
        paths = {name: self.folder / f"kvassay-{name}.wasm" for name in self.variants}
        return {name: path for name, path in paths.items() if path.is_file()}


def web_assets() -> dict[str, WebAssets]:
    """All installed assets by backend; raises RegistryError on duplicates."""
    return dict(loaded(WEB))
