"""The library for programs in C and C++: headers, shared and static library, pkg-config, CMake."""

import tempfile
from pathlib import Path
from string import Template

import library
import recipe
from archive import write_tar

TEMPLATES = Path(__file__).resolve().parent / "templates"
LICENSE = recipe.BACKENDS.parent / "LICENSE"


def build(target: recipe.Target, version: str, state: str, seconds: int, output: Path) -> Path:
    """The archive of one machine in `output`; `state` says in its README whether it was run."""
    name = f"kvassay-c-{version}-{target.wheel_tag}"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        library.build(target, made)
        static = library.build_static(target, made)
        linked = "bin" if target.library.endswith(".dll") else "lib"
        files = {
            f"{linked}/{target.library}": (made / target.library).read_bytes(),
            f"lib/{static.name}": static.read_bytes(),
            f"share/kvassay/{recipe.RECORD}": (made / recipe.RECORD).read_bytes(),
            "LICENSE": LICENSE.read_bytes(),
        }
        if target.import_library:
            files[f"lib/{target.import_library}"] = (made / target.import_library).read_bytes()
        for header in recipe.HEADERS:
            files[f"include/{header}"] = (made / header).read_bytes()
    words = {
        "version": version,
        "target": target.triple,
        "state": state,
        "shared": f"{linked}/{target.library}",
        "static": f"lib/{static.name}",
        "implib": f"lib/{target.import_library}",
        "libraries": "" if "windows" in target.triple else "-lm -pthread",
    }
    for place, template in {
        "README.md": "README.md",
        "lib/pkgconfig/kvassay.pc": "kvassay.pc",
        "lib/cmake/kvassay/kvassay-config.cmake": "kvassay-config.cmake",
        "lib/cmake/kvassay/kvassay-config-version.cmake": "kvassay-config-version.cmake",
    }.items():
        text = Template((TEMPLATES / template).read_text(encoding="utf-8"))
        files[place] = text.substitute(words).encode()
    whole = {f"{name}/{path}": content for path, content in files.items()}
    return write_tar(output / f"{name}.tar.gz", whole, seconds)
