"""Which variants of other machines the native library has, and which of them an emulator runs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from kvassay.errors import KvassayError, UnavailableError
from kvassay.protocol import Availability, Backend

from ..native.probe import exercise
from ..native.provider import once_a_file
from .backend import EmulatedBackend
from .build_info import LIBRARY_DIR, build_record, not_built_reason
from .link import Command, Link

#: Beside scalar, by processor family and from best to most portable.
VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "x86_64": ("avx512vnni", "avx512", "avx2"),
    "aarch64": ("neondot", "neon"),
}
_FAMILIES: Final = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_SYSTEM: Final = {"x86_64": "x86-64", "aarch64": "aarch64"}

EMULATOR: Final = "qemu-aarch64-static"
INSTALL: Final = "apt install qemu-user-static"


def foreign_variants() -> dict[str, Availability]:
    """The variants that this machine's processor family has not."""
    own = _FAMILIES.get(platform.machine(), "")
    found: dict[str, Availability] = {}
    for family, names in VARIANTS.items():
        if family != own:
            found |= _emulated(names) if family == "aarch64" else _unsupported(family, names)
    return found


def load(name: str, variant: str) -> Backend:
    """An emulated variant as a backend called `name`; UnavailableError where it does not run."""
    state = foreign_variants()[variant]
    if not state.runs:
        raise UnavailableError(f"{name}, variant {variant!r}: {state.status}: {state.reason}")
    return EmulatedBackend(name, _link(os.getpid()), variant)


def _unsupported(family: str, names: tuple[str, ...]) -> dict[str, Availability]:
    reason = f"{_SYSTEM[family]} alone has it, and nothing here emulates that"
    return {name: Availability("unsupported-cpu", reason) for name in names}


def _emulated(names: tuple[str, ...]) -> dict[str, Availability]:
    if sys.platform != "linux":
        return _unsupported("aarch64", names)
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        missing = Availability("missing-package", f"{EMULATOR} missing: {INSTALL}")
        return dict.fromkeys(names, missing)
    if reason := not_built_reason():
        return dict.fromkeys(names, Availability("not-built", reason))
    record = build_record()
    assert record is not None
    server = LIBRARY_DIR / record["library"]
    if not server.is_file():
        return dict.fromkeys(names, Availability("not-built", f"no {server}"))
    tested = once_a_file(server, record["build_id"], lambda: {n: _tried(n) for n in names})
    return {name: tested[name] for name in names}


def _tried(variant: str) -> Availability:
    """Emulated if a small cache of every codec family works."""
    try:
        link = _link(os.getpid())
        record = build_record()
        if record is None or link.build_id != record["build_id"]:
            return Availability("broken", f"build id {link.build_id}, build.json has another")
        if variant not in link.variants:
            return Availability("broken", f"the server has only {', '.join(link.variants)}")
        link.call(Command.RUNS, count=link.variants.index(variant))
        reason = exercise(EmulatedBackend("probe", link, variant))
    except KvassayError as error:
        reason = f"{type(error).__name__}: {error}"
    return Availability("broken", reason) if reason else Availability("emulated", EMULATOR)


@lru_cache(maxsize=1)
def _link(process: int) -> Link:
    """The server of this process; one that forked starts its own."""
    record = build_record()
    assert record is not None
    return Link((EMULATOR, str(LIBRARY_DIR / record["library"])))
