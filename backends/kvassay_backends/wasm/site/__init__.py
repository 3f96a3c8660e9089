"""The dogfood page: static files, with the JavaScript host and the modules beside them."""

from __future__ import annotations

from pathlib import Path

from ...web import assets

_PAGE = Path(__file__).resolve().parent
_SUFFIXES = (".html", ".css", ".mjs", ".svg")


def files() -> dict[str, Path]:
    """URL path to file: the page, the JavaScript host as `host/`, the modules as `host/wasm/`."""
    found = {
        path.relative_to(_PAGE).as_posix(): path
        for path in sorted(_PAGE.rglob("*"))
        if path.suffix in _SUFFIXES
    }
    for path in sorted(assets.host.rglob("*.mjs")):
        name = path.relative_to(assets.host).as_posix()
        if name == "kvassay.mjs" or name.startswith("src/"):
            found[f"host/{name}"] = path
    for path in sorted(assets.folder.iterdir() if assets.folder.is_dir() else ()):
        if path.suffix in (".wasm", ".json"):
            found[f"host/wasm/{path.name}"] = path
    return found
