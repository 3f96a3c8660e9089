"""Runs cases and gives records: who took how long, and who has no figure and why."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from kvassay.errors import KvassayError
from kvassay.records import Record

from .cases import Case
from .inputs import make_inputs
from .protocol import NotMeasured, Peer
from .rounds import Series, take_turns
from .verify import require_right
from .worker import Ready, Worker, load_peer

#: Where each peer is. The first type of the first one is what the others are compared with.
PEERS: Final = MappingProxyType(
    {
        name: f"{__package__}.{name}:peer"
        for name in (
            "kvassay_native",
            "kvassay_kernels",
            "ggml",
            "ort_gqa",
            "torch_sdpa",
            "faiss_fastscan",
            "turbovec",
            "numpy_fp32",
            "plain_read",
        )
    }
)

TIME: Final = "peers.time"
NOT_MEASURED: Final = "peers.not_measured"


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    cases: Sequence[Case]
    threads: Sequence[int] = (1, 2)
    rounds: int = 11
    seconds: float = 0.05
    """How long a turn lasts at least; it is one run or more."""
    peers: Sequence[str] = tuple(PEERS.values())
    clock: str = "wall"
    """`cpu` is for a machine that others use too, and for one thread."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Marks the records of one run: only these can be compared round by round."""


@dataclass(frozen=True)
class Entrant:
    """One type of one peer with so many threads, set up and found right."""

    peer: Peer
    type: str
    threads: int
    base: bool
    worker: Worker
    ready: Ready
    error: float
    tolerance: float


def measure(plan: Plan) -> Iterator[Record]:
    """Every case; all peers with all numbers of threads take turns within it, each peer in a
    process of its own for each number.

    Raises KvassayError for more threads than cores, and for processor time of several threads.
    """
    if plan.clock == "cpu" and any(threads > 1 for threads in plan.threads):
        raise KvassayError(
            "processor time says nothing of several threads: --clock cpu --threads 1"
        )
    workers: list[Worker] = []
    try:
        workers += [Worker(path, threads) for threads in plan.threads for path in plan.peers]
        for case in plan.cases:
            yield from _measure_case(plan, case, workers)
            workers[:] = [_ready_again(worker) for worker in workers]
    finally:
        for worker in workers:
            worker.close()


def _ready_again(worker: Worker) -> Worker:
    """The same worker without what it had set up, or a new one if it died."""
    with suppress(NotMeasured):
        worker.drop()
        return worker
    worker.close()
    return Worker(worker.peer, worker.threads)


def _measure_case(plan: Plan, case: Case, workers: Sequence[Worker]) -> Iterator[Record]:
    entrants: list[Entrant] = []
    with tempfile.TemporaryDirectory(prefix="kvassay-peers-") as folder:
        inputs = make_inputs(case)
        inputs.save(Path(folder))
        for worker in workers:
            peer = load_peer(worker.peer)
            try:
                types = peer.types(case)
            except NotMeasured as error:
                yield _not_measured(plan, case, worker.threads, peer.name, "", str(error))
                continue
            for number, (name, tolerance) in enumerate(types.items()):
                try:
                    ready = worker.prepare(case, name, Path(folder))
                    off = require_right(ready.result, inputs.expected, tolerance)
                except NotMeasured as error:
                    yield _not_measured(plan, case, worker.threads, peer.name, name, str(error))
                    continue
                base = worker.peer == plan.peers[0] and number == 0
                entrants.append(
                    Entrant(peer, name, worker.threads, base, worker, ready, off, tolerance)
                )
        turns = {
            str(number): partial(e.worker.measure, e.type, plan.seconds, plan.clock)
            for number, e in enumerate(entrants)
        }
        series = take_turns(turns, plan.rounds)
        for number, entrant in enumerate(entrants):
            yield _timed(plan, case, entrant, series[str(number)])


def _timed(plan: Plan, case: Case, entrant: Entrant, series: Series) -> Record:
    if series.lost:
        return _not_measured(
            plan, case, entrant.threads, entrant.peer.name, entrant.type, series.lost
        )
    times = [ns / entrant.ready.units for ns in series.rounds]
    detail: dict[str, Any] = {
        "rounds_ns": times,
        "clock": plan.clock,
        "role": entrant.peer.role,
        "base": entrant.base,
        "error": entrant.error,
        "tolerance": entrant.tolerance,
        "bytes": entrant.ready.bytes,
        "version": entrant.ready.version,
    }
    with suppress(NotMeasured):
        detail["notes"] = dict(entrant.worker.notes(entrant.type))
    return _record(
        plan,
        case,
        entrant.threads,
        check=TIME,
        backend=entrant.peer.name,
        variant=entrant.type,
        value=median(times),
        comparisons=series.runs,
        detail=detail,
    )


def _not_measured(
    plan: Plan, case: Case, threads: int, peer: str, type_: str, reason: str
) -> Record:
    return _record(
        plan,
        case,
        threads,
        check=NOT_MEASURED,
        backend=peer,
        variant=type_,
        value=0.0,
        comparisons=0,
        detail={"reason": reason},
    )


def _record(plan: Plan, case: Case, threads: int, *, detail: dict[str, Any], **own: Any) -> Record:
    return Record(
        suite="peers",
        stage="",
        unit="ns",
        subject=f"{case.name}, threads {threads}",
        detail={"case": case.name, "threads": threads, "run": plan.run, **detail},
        reproduce=f"python -m {__package__} --case {case.name} --threads {threads}",
        **own,
    )
