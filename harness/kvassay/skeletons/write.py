"""New backends that work from the start: the folder `kvassay new-backend` writes.

Templates are in `skeletons`, one folder a kind and `common` for what all have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ..errors import KvassayError
from ..suggest import did_you_mean

Kind = Literal["python", "c", "cpp", "rust", "wasm", "foreign"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class File:
    """A file of a skeleton: its template, and what it is in one line."""

    template: str
    what: str


#: Kinds that are Python packages: nothing is built.
_PACKAGES: Final[tuple[Kind, ...]] = ("python", "foreign")
_PROJECT: Final = File("python/pyproject.toml.j2", "the package, with its entry point")
_SOURCES: Final[Mapping[Kind, Mapping[str, File]]] = {
    "python": {
        "{module}.py": File("python/backend.py.j2", "the backend: its class and its kernels"),
        "pyproject.toml": _PROJECT,
    },
    "c": {"{module}.c": File("c/kernels.c.j2", "the kernels")},
    "cpp": {"{module}.cpp": File("cpp/kernels.cpp.j2", "the kernels")},
    "rust": {
        "src/lib.rs": File("rust/lib.rs.j2", "the kernels"),
        "src/abi.rs": File("rust/abi.rs.j2", "the structs of `kvassay.h`"),
        "Cargo.toml": File("rust/Cargo.toml.j2", "the crate"),
    },
    "wasm": {"{module}.c": File("wasm/module.c.j2", "the kernels")},
    "foreign": {
        "{module}.py": File("foreign/backend.py.j2", "the backend: its format, codec and cache"),
        "pyproject.toml": _PROJECT,
    },
}
_BUILD: Final = {"build.py": File("common/build.py.j2", "builds it")}
_COMMON: Final = {
    "test_gate.py": File("common/test_gate.py.j2", "its test: the quick gate passes"),
    ".github/workflows/gate.yml": File("common/gate.yml.j2", "the gate in CI"),
    "README.md": File("common/README.md.j2", "how to build and judge it"),
}


def files_of(kind: Kind) -> dict[str, File]:
    """The files of a skeleton by their paths, in which `{module}` stands for the module's name."""
    built = {} if kind in _PACKAGES else _BUILD
    return {**_SOURCES[kind], **built, **_COMMON}


def write_skeleton(name: str, kind: str, folder: Path) -> list[Path]:
    """Write a new backend into `folder`, which must not exist or be empty; the files written.

    Raises KvassayError for an unknown kind, a name that is none, and a folder in use.
    """
    if kind not in KINDS:
        raise KvassayError(f"no kind {kind!r}{did_you_mean(kind, KINDS)}")
    if not _NAME.fullmatch(name):
        raise KvassayError(
            f"{name!r} cannot name a backend: use lower-case letters, digits and single hyphens, "
            f"a letter first"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise KvassayError(f"{folder} is in use; choose another name or --into another folder")
    import jinja2  # slow, and the kinds are completed in a shell

    known: Kind = kind
    facts = _facts(name, known)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kvassay", "skeletons"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # none of them is HTML
    )
    written = []
    for pattern, file in files_of(known).items():
        path = folder / pattern.format(module=facts["module"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(environment.get_template(file.template).render(facts), encoding="utf-8")
        written.append(path)
    return written


def _facts(name: str, kind: Kind) -> dict[str, Any]:
    module = name.replace("-", "_")
    class_name = "".join(part.capitalize() for part in name.split("-"))
    artefact = f"{module}.{'wasm' if kind == 'wasm' else 'so'}"
    door = f"--{'wasm' if kind == 'wasm' else 'library'} {artefact}"
    files = [(pattern.format(module=module), file.what) for pattern, file in files_of(kind).items()]
    return {
        "name": name,
        "module": module,
        "class_name": class_name,
        "kind": kind,
        "artefact": artefact,
        "package": kind in _PACKAGES,
        "door": f"--backend {module}:{class_name}" if kind in _PACKAGES else door,
        # a format of one's own is judged as it is; what stores fp16 is a baseline
        "asked": "" if kind == "foreign" else " --preset fp16 --judge-named",
        "files": files,
    }
