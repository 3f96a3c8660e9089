"""Finds out which modules run here, and loads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from kvassay.backend.trials import trial_seconds
from kvassay.errors import KvassayError, UnavailableError
from kvassay.protocol import Availability, Backend, BackendProvider

from ..native.probe import exercise
from ..native.provider import once_a_file
from .backend import WasmBackend
from .build_info import LIBRARY_DIR, WasmRecord, build_record, stale_reason
from .features import lacks
from .instance import Instance, Limits
from .kernel_backend import open_backend
from .module import INSTALL, Module, installed

#: For a module that someone else made: enough memory for every measurement of the suites, and
#: about a minute of one core a call.
SANDBOX: Final = Limits(memory=1 << 30, fuel=50_000_000_000)
#: The same while it is only tried.
TRIAL: Final = Limits(memory=256 << 20, fuel=5_000_000_000)
#: How a backend is listed whose modules cannot be asked: under the variant that all have.
PORTABLE: Final = "scalar"


class WasmBackendProvider(BackendProvider):
    """The modules built from this project's sources: one a variant, best first."""

    def __init__(self, name: str) -> None:
        self.name = name

    def variants(self) -> Mapping[str, Availability]:
        return dict(self._variants)

    @cached_property
    def _variants(self) -> dict[str, Availability]:
        if not installed():
            return {PORTABLE: Availability("missing-package", f"wasmtime; {INSTALL}")}
        try:
            record = self._record
        except UnavailableError as error:
            return {PORTABLE: Availability("not-built", str(error))}
        return {name: _state(record, name) for name in reversed(record["modules"])}

    def load(self, variant: str) -> Backend:
        state = self._variants.get(variant)
        if state is None or not state.runs:
            reason = f"{state.status}: {state.reason}" if state else "no such variant"
            raise UnavailableError(f"{self.name}, variant {variant!r}: {reason}")
        return WasmBackend(self.name, _open(self._record, variant), variant, shipped=True)

    @cached_property
    def _record(self) -> WasmRecord:
        """Found out once: to compare a build with its sources, every file of them is read."""
        return _fresh_record()


class OneModuleProvider(BackendProvider):
    """Someone's own module, which is not trusted: sandboxed, with memory and instructions limited.

    Its variants are those that it lists itself.
    """

    def __init__(self, path: Path) -> None:
        self.name = f"wasm:{path}"
        self._path = path

    def variants(self) -> Mapping[str, Availability]:
        if not installed():
            return {PORTABLE: Availability("missing-package", f"wasmtime; {INSTALL}")}
        if not self._path.is_file():
            raise UnavailableError(f"no module {self._path}")
        return once_a_file(self._path, None, self._find)

    def _find(self) -> dict[str, Availability]:
        try:
            module = self._module  # compiled before its time begins
            names = Instance(module, _trial()).variants
        except KvassayError as error:
            return {PORTABLE: Availability("broken", str(error))}
        return {name: self._try(name) for name in reversed(names)}

    def _try(self, variant: str) -> Availability:
        return _tried(lambda: open_backend(self.name, self._module, variant, _trial()))

    @cached_property
    def _module(self) -> Module:
        return Module.open(self._path, metered=True)

    def load(self, variant: str) -> Backend:
        return open_backend(self.name, self._module, variant, SANDBOX)


def _trial() -> Limits:
    return replace(TRIAL, seconds=trial_seconds(), start=time.monotonic())


def _fresh_record() -> WasmRecord:
    """The record of modules that are built and match their sources; UnavailableError if not."""
    record, stale = build_record(), stale_reason()
    if record is None:
        raise UnavailableError(stale or f"no modules in {LIBRARY_DIR}; reinstall kvassay")
    if stale is not None:
        raise UnavailableError(f"stale: {stale}")
    return record


def _open(record: WasmRecord, variant: str, metered: bool = False) -> Module:
    """A module of the record; UnavailableError if it is not the one that was built."""
    built = record["modules"][variant]
    module = Module.open(LIBRARY_DIR / built["file"], metered)
    if module.sha256 != built["sha256"]:
        raise UnavailableError(
            f"{built['file']}: SHA-256 {module.sha256[:12]}..., but build.json says "
            f"{built['sha256'][:12]}...; run: python backends/hatch_build.py"
        )
    return module


def _state(record: WasmRecord, variant: str) -> Availability:
    if feature := lacks(variant):
        return Availability("unsupported-cpu", f"this wasmtime has no {feature} instructions")
    path = LIBRARY_DIR / record["modules"][variant]["file"]
    if not path.is_file():
        return Availability("not-built", f"no {path}; run: python backends/hatch_build.py")

    def find() -> dict[str, Availability]:
        return {variant: _tried(lambda: WasmBackend("wasm", _open(record, variant), variant))}

    return once_a_file(path, record["build_id"], find)[variant]


def _tried(load: Callable[[], WasmBackend]) -> Availability:
    """Ready if a small cache of every codec family works."""
    try:
        reason = exercise(load())
    except KvassayError as error:
        reason = f"{type(error).__name__}: {error}"
    return Availability("broken", reason) if reason else Availability("ready")
