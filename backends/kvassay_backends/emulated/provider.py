"""Which variants of other machines a library has, and which of them an emulator runs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kvassay.errors import KvassayError, UnavailableError
from kvassay.protocol import Availability, Backend

from ..native.isas import ISAS
from ..native.probe import exercise
from ..native.provider import once_a_file
from . import build_info
from .backend import EmulatedBackend
from .link import Command, Link

#: Beside scalar, by processor and from best to most portable.
VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    processor: tuple(name for name in reversed(tuple(ISAS[processor])) if name != "scalar")
    for processor in ("x86_64", "aarch64")
}
_PROCESSORS: Final = {
    "x86_64": "x86_64",
    "AMD64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}
_SYSTEM: Final = {"x86_64": "x86-64", "aarch64": "aarch64"}

EMULATOR: Final = "qemu-aarch64-static"
INSTALL: Final = "apt install qemu-user-static"


@dataclass(frozen=True)
class Server:
    """A library for aarch64 in the server that its build makes."""

    folder: Path
    """Where the server's file is."""
    record: Callable[[], Mapping[str, Any] | None]
    """What the build wrote: `build_id` and `library`, the file's name, where there is one."""
    not_built_reason: Callable[[], str]
    """Why there is none of the present sources, or ""."""


#: The C library.
NATIVE: Final = Server(build_info.LIBRARY_DIR, build_info.build_record, build_info.not_built_reason)


def foreign_variants(server: Server = NATIVE) -> dict[str, Availability]:
    """The variants that this machine's processor has not."""
    own = _PROCESSORS.get(platform.machine(), "")
    found: dict[str, Availability] = {}
    for processor, names in VARIANTS.items():
        if processor == own:
            continue
        arm = processor == "aarch64"
        found |= _emulated(server, names) if arm else _unsupported(processor, names)
    return found


def load(name: str, variant: str, server: Server = NATIVE) -> Backend:
    """An emulated variant as a backend called `name`; UnavailableError where it does not run."""
    state = foreign_variants(server)[variant]
    if not state.runs:
        raise UnavailableError(f"{name}, variant {variant!r}: {state.status}: {state.reason}")
    return EmulatedBackend(name, _link(os.getpid(), _file(server)), variant)


def _unsupported(processor: str, names: tuple[str, ...]) -> dict[str, Availability]:
    reason = f"{_SYSTEM[processor]} alone has it, and nothing here emulates that"
    return {name: Availability("unsupported-cpu", reason) for name in names}


def _emulated(server: Server, names: tuple[str, ...]) -> dict[str, Availability]:
    if sys.platform != "linux":
        return _unsupported("aarch64", names)
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        missing = Availability("missing-package", f"{EMULATOR} missing: {INSTALL}")
        return dict.fromkeys(names, missing)
    if reason := server.not_built_reason():
        return dict.fromkeys(names, Availability("not-built", reason))
    file, build_id = _file(server), _record(server)["build_id"]
    if not file.is_file():
        return dict.fromkeys(names, Availability("not-built", f"no {file}"))
    tested = once_a_file(file, build_id, lambda: {n: _tried(file, build_id, n) for n in names})
    return {name: tested[name] for name in names}


def _record(server: Server) -> Mapping[str, Any]:
    record = server.record()
    assert record is not None
    return record


def _file(server: Server) -> Path:
    return server.folder / str(_record(server)["library"])


def _tried(file: Path, build_id: str, variant: str) -> Availability:
    """Emulated if a small cache of every codec family works."""
    try:
        link = _link(os.getpid(), file)
        if link.build_id != build_id:
            return Availability("broken", f"build id {link.build_id}, build.json has another")
        if variant not in link.variants:
            return Availability("broken", f"the server has only {', '.join(link.variants)}")
        link.call(Command.RUNS, count=link.variants.index(variant))
        reason = exercise(EmulatedBackend("probe", link, variant))
    except KvassayError as error:
        reason = f"{type(error).__name__}: {error}"
    return Availability("broken", reason) if reason else Availability("emulated", EMULATOR)


@lru_cache(maxsize=2)
def _link(process: int, file: Path) -> Link:
    """The server of this process, one a library; a process that forked starts its own."""
    return Link((EMULATOR, str(file)))
