"""Finds out what a shared library can do here, without trusting it, and loads it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from kvassay.backend.trials import trial_seconds
from kvassay.errors import UnavailableError
from kvassay.protocol import Availability, Backend, BackendProvider, Status

from .abi import Library
from .build_info import LIBRARY_DIR, build_record, stale_reason
from .kernel_backend import open_backend

#: How a library that cannot be asked for its variants is listed: the one that all have.
PORTABLE: Final = "scalar"
#: Starting the child process has a limit of its own, since on a busy machine that takes longer than
#: any answer of a library.
START_SECONDS: Final = 120
_LOOK_AGAIN: Final = 0.2
#: Environment variable with what was probed already, by file (JSON).
PROBED: Final = "KVASSAY_PROBED"


class LibraryBackendProvider(BackendProvider):
    """The variants of a library that exports kvassay.h, best first.

    `path` None is the library built from this project's sources; any other is someone's own. The
    library is first run in a child process (`probe`), once for each provider: what crashes or hangs
    there is "broken", with the signal as the reason.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self.foreign = path is not None
        self._path = path

    def variants(self) -> Mapping[str, Availability]:
        return dict(self._variants)

    @cached_property
    def _variants(self) -> dict[str, Availability]:
        try:
            path, build_id = self._located
        except UnavailableError as error:
            return {PORTABLE: Availability("not-built", str(error))}
        return once_a_file(path, build_id, lambda: probe(path, build_id))

    @cached_property
    def _located(self) -> tuple[Path, str | None]:
        """The library's file and the build id it must have (None: any)."""
        if self._path is not None:
            if not self._path.is_file():
                raise UnavailableError(f"no library {self._path}")
            return self._path, None
        record = build_record()
        stale = stale_reason()
        if record is None:
            raise UnavailableError(stale or f"no library in {LIBRARY_DIR}; reinstall kvassay")
        if stale is not None:
            raise UnavailableError(f"stale: {stale}")
        path = LIBRARY_DIR / record["library"]
        if not path.is_file():
            raise UnavailableError(f"no library {path}; run: python backends/hatch_build.py")
        return path, record["build_id"]

    def load(self, variant: str) -> Backend:
        state = self._variants.get(variant)
        if state is None or not state.runs:
            reason = f"{state.status}: {state.reason}" if state else "no such variant"
            raise UnavailableError(f"{self.name}, variant {variant!r}: {reason}")
        return open_backend(self.name, self._library, variant)

    @cached_property
    def _library(self) -> Library:
        return Library(self._located[0])


def once_a_file(
    path: Path, build_id: str | None, find: Callable[[], dict[str, Availability]]
) -> dict[str, Availability]:
    """What `find` finds out about a file, once for this process and the processes it starts.

    Suites measure in fresh processes; each would otherwise start a probe of its own, which costs
    more than many measurements. The environment is what a child inherits whatever starts it.
    """
    found = path.stat()
    key = f"{path.resolve()} {found.st_ino} {found.st_size} {found.st_mtime_ns} {build_id}"
    known: dict[str, dict[str, tuple[Status, str]]] = json.loads(os.environ.get(PROBED, "{}"))
    if key not in known:
        known[key] = {name: (state.status, state.reason) for name, state in find().items()}
        os.environ[PROBED] = json.dumps(known)
    return {name: Availability(*state) for name, state in known[key].items()}


def probe(path: Path, build_id: str | None = None) -> dict[str, Availability]:
    """Availability of every variant of a library, best first, tried in child processes.

    `build_id` is what the library must say of itself; None takes any.
    """
    found: dict[str, Availability] = {}
    names: list[str] = []
    while True:
        lines, died = _run_probe(path, list(found))
        trying = None
        for line in lines:
            if "refused" in line:
                return {PORTABLE: Availability("broken", line["refused"])}
            if "variants" in line:
                names = line["variants"]
                if build_id not in (None, line["build_id"]):
                    reason = f"build id {line['build_id']}, but build.json says {build_id}"
                    return {PORTABLE: Availability("broken", reason)}
            trying = line.get("trying")
            if "variant" in line:
                status: Status = line["status"]
                found[line["variant"]] = Availability(status, line["reason"])
        if died and trying is not None:
            found[trying] = Availability("broken", died)  # and the others in another process
        elif died or not names:
            return {PORTABLE: Availability("broken", died or "the library lists no variants")}
        if all(name in found for name in names):
            return {name: found[name] for name in reversed(names)}


def _run_probe(path: Path, skip: list[str]) -> tuple[list[dict[str, Any]], str]:
    """The lines that the child wrote and how it died, "" if it did not; where it cannot be started,
    why not."""
    try:
        return _probed(path, skip)
    except OSError as error:
        return [], f"cannot be tried: {error.strerror or error}; is there a temporary folder?"


def _probed(path: Path, skip: list[str]) -> tuple[list[dict[str, Any]], str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory(prefix="kvassay-probe-") as folder:
        out, said = Path(folder) / "out.jsonl", Path(folder) / "stderr"
        out.touch()
        # Not by -m, which warns that the package has imported the module already: where warnings
        # are errors that would be the end of every library.
        start = f"import sys; from {__package__}.probe import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", start, str(path), str(out), *skip]
        with said.open("wb") as stderr:
            quiet = subprocess.DEVNULL
            child = subprocess.Popen(
                command, env=environment, stdin=quiet, stdout=quiet, stderr=stderr, cwd=folder
            )
            died = _watch(child, out) or _cause_of_death(child.returncode, said)
        lines = out.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], died


def _watch(child: subprocess.Popen[bytes], out: Path) -> str:
    """Wait until the child ends; kill it, and say so, where it writes no further line in time."""
    written, limit = 0, float(START_SECONDS)
    deadline = time.monotonic() + limit
    while True:
        try:
            child.wait(_LOOK_AGAIN)
            return ""
        except subprocess.TimeoutExpired:
            size = out.stat().st_size
            if size != written:
                written, limit = size, trial_seconds()
                deadline = time.monotonic() + limit
            elif time.monotonic() > deadline:
                child.kill()
                child.wait()
                return f"did not finish within {limit:g} s"


def _cause_of_death(status: int, said: Path) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    last = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return f"exit status {status}: {''.join(last)}"
