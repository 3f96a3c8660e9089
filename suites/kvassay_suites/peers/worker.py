"""A peer in a process of its own, pinned to its cores, with thread pools of that size."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kvassay.errors import KvassayError

from .cases import Case
from .inputs import Inputs
from .protocol import NotMeasured, Peer, Prepared, Result

#: Read by OpenMP, OpenBLAS, MKL and rayon when loaded, hence set before the process starts.
_POOLS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
_ANSWER_SECONDS: Final = 300.0
#: What a run is timed with. Processor time leaves out what others did meanwhile, and waiting too.
CLOCKS: Final = MappingProxyType({"wall": time.perf_counter_ns, "cpu": time.process_time_ns})


@dataclass(frozen=True)
class Ready:
    """A type that is set up: its first result and what is known of it."""

    result: Result
    units: int
    bytes: int
    version: str


def load_peer(path: str) -> Peer:
    """The object that `module:name` names."""
    module, _, name = path.partition(":")
    peer = getattr(importlib.import_module(module), name)
    if not isinstance(peer, Peer):
        raise KvassayError(f"{path} is no Peer")
    return peer


def own_cores(threads: int) -> list[int]:
    """The last `threads` of the cores this process may use; KvassayError if there are fewer."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise KvassayError(f"{threads} threads need as many cores; this process has {len(allowed)}")
    return allowed[-threads:]


class Worker:
    """A running peer process. Every method raises NotMeasured with the reason if the peer fails."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        context = multiprocessing.get_context("spawn")
        self._mine, theirs = context.Pipe()
        cores = own_cores(threads)
        self._process = context.Process(
            target=_serve, args=(theirs, peer, threads, cores), daemon=True
        )
        with _environment(dict.fromkeys(_POOLS, str(threads))):
            self._process.start()
        theirs.close()

    def prepare(self, case: Case, type_: str, folder: Path) -> Ready:
        """Set a type up from saved inputs and run it once."""
        ready: Ready = self._ask("prepare", case, type_, folder)
        return ready

    def measure(self, type_: str, seconds: float, clock: str = "wall") -> list[int]:
        """Run it once untimed, then at least once and until `seconds` passed; ns of each run."""
        times: list[int] = self._ask("measure", type_, seconds, clock)
        return times

    def notes(self, type_: str) -> Mapping[str, float]:
        """Further figures of what ran."""
        found: Mapping[str, float] = self._ask("notes", type_)
        return found

    def drop(self) -> None:
        """Release whatever is set up."""
        self._ask("drop")

    def close(self) -> None:
        """End the process."""
        self._mine.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, *request: Any) -> Any:
        try:
            self._mine.send(request)
            if not self._mine.poll(_ANSWER_SECONDS):
                self._process.kill()
                raise NotMeasured(f"{request[0]}: no answer within {_ANSWER_SECONDS:g} s")
            ok, answer = self._mine.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise NotMeasured(
                f"{request[0]}: the process died, exit code {self._process.exitcode}"
            ) from None
        if not ok:
            raise NotMeasured(answer)
        return answer


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(pipe: Connection, path: str, threads: int, cores: list[int]) -> None:
    """Answer requests until the other end closes."""
    os.sched_setaffinity(0, cores)
    session = _Session(load_peer(path), threads)
    gc.disable()
    while True:
        try:
            name, *arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, getattr(session, name)(*arguments))
        except NotMeasured as error:
            answer = (False, str(error))
        except Exception as error:  # whatever a peer raises is its result
            answer = (False, f"{name}: {type(error).__name__}: {error}")
        pipe.send(answer)


class _Session:
    def __init__(self, peer: Peer, threads: int) -> None:
        self._peer, self._threads = peer, threads
        self._prepared: dict[str, Prepared] = {}

    def prepare(self, case: Case, type_: str, folder: Path) -> Ready:
        version = self._peer.version()
        made = self._peer.prepare(case, type_, Inputs.load(folder), self._threads)
        self._prepared[type_] = made
        made.before()
        made.run()
        return Ready(made.result(), made.units, made.bytes, version)

    def measure(self, type_: str, seconds: float, clock: str) -> list[int]:
        made, now = self._prepared[type_], CLOCKS[clock]
        made.before()
        made.run()
        times: list[int] = []
        while sum(times) < seconds * 1e9:
            made.before()
            start = now()
            made.run()
            times.append(now() - start)
        return times

    def notes(self, type_: str) -> Mapping[str, float]:
        return self._prepared[type_].notes()

    def drop(self) -> None:
        self._prepared.clear()
        gc.collect()
