"""What this machine can do at best: reads from memory, operations, and steps of its clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np

from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.running.doctor import clock_step
from kvassay.running.machine import caches, frequency

from ..common.specs import record
from .work import calibrate, processor_time

#: Far beyond any cache, and small enough for any machine.
_READ_BYTES: Final = 1 << 28
_ORDER: Final = 384
_TIMES: Final = 7
_BATCH_BYTES: Final = 1 << 24
_SPREAD_TIMES: Final = 101


@dataclass(frozen=True)
class Ceilings:
    """Bytes a second of a plain read, operations a second, both of one core; the fixed loop in
    nanoseconds."""

    bandwidth: float
    operations: float
    calibration: float


@cache
def ceilings() -> Ceilings:
    """Measured once a process.

    Reads: the maximum over 256 MiB of floats, which numpy computes with vectors. Operations: a
    product of float32 matrices, an addition and a multiplication each; integer kernels may have
    more, so shares of it are lower bounds of nothing and serve comparison alone.
    """
    data = np.ones(_READ_BYTES // 4, np.float32)
    a, b = (np.ones((_ORDER, _ORDER), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return Ceilings(
        bandwidth=_READ_BYTES / _seconds(lambda: data.max()),
        operations=2 * _ORDER**3 / _seconds(lambda: np.matmul(a, b, out=out)),
        calibration=1e9 * _seconds(calibrate),
    )


def measure() -> list[Record]:
    """The ceilings as a record of no backend."""
    found = ceilings()
    detail = {
        "bytes_per_second": found.bandwidth,
        "operations_per_second": found.operations,
        "calibration_ns": found.calibration,
        "clock_step_ns": clock_step() * 1e9,
        "reads_gb_per_second": _reads(),
        "frequency": frequency(),
        "spread": _spread(),
        "method": {
            "bytes_per_second": "maximum of 256 MiB of float32, one core",
            "operations_per_second": f"product of float32 matrices of order {_ORDER}, one core",
            "calibration_ns": "SHA-256 of 64 KiB",
            "reads_gb_per_second": "maximum of floats that fill half of each cache; the call, "
            "about a microsecond, is in it",
            "spread": f"the fixed loop {_SPREAD_TIMES} times: what 9 of 10 took, over the median",
        },
    }
    return [
        record(
            *("performance.ceilings", "math", "", "", found.bandwidth / 1e9, "GB/s read", _TIMES),
            detail=detail,
        )
    ]


def _reads() -> dict[str, float]:
    """Reads a second in GB from each cache but the first, where a call takes longer than a read."""
    found = {}
    for level in caches():
        if level.level > 1:
            data = np.ones(level.bytes // 8, np.float32)
            times = max(1, _BATCH_BYTES // data.nbytes)
            seconds = _seconds(partial(_read, data, times))
            found[level.name] = times * data.nbytes / seconds / 1e9
    return found


def _read(data: FloatArray, times: int) -> None:
    for _ in range(times):
        data.max()


def _spread() -> list[float]:
    """How evenly this core runs: the 5th and 95th of 100 fixed loops, over their median."""
    times = []
    for _ in range(_SPREAD_TIMES):
        began = processor_time()
        calibrate()
        times.append(processor_time() - began)
    low, middle, high = np.percentile(times, (5, 50, 95))
    return [float(low / middle), float(high / middle)]


def _seconds(work: Callable[[], object]) -> float:
    """The median of a few runs after one that warms up, in processor time."""
    work()
    times = []
    for _ in range(_TIMES):
        began = processor_time()
        work()
        times.append(processor_time() - began)
    return max(statistics.median(times), 1) / 1e9
