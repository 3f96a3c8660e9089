"""Calls timed by turns, each sample long enough for the clock, with a fixed loop among them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvassay.statistics.noise import Ratio, interval

from .work import Call, calibrate, processor_time

#: Name of the fixed loop among the contestants.
CALIBRATION: Final = "calibration"
#: A sample is the least of so many stretches of so many nanoseconds: what else runs here can only
#: lengthen a stretch, and short ones fit between its turns.
_STRETCHES: Final = 8
_STRETCH_NS: Final = 200_000
_LEAST_ROUNDS: Final = 10
#: By how much the fixed loop may take longer or shorter afterwards for a run to count as steady.
STEADY: Final = 1.25


@dataclass(frozen=True)
class Series:
    """Nanoseconds of one call, a sample a round, and of the fixed loop in the same rounds.

    `before` and `after` are medians of the fixed loop around the whole run.
    """

    samples: Mapping[str, Sequence[float]]
    before: float
    after: float

    @property
    def rounds(self) -> int:
        """Rounds that were run."""
        return len(self.samples[CALIBRATION])

    @property
    def drift(self) -> float:
        """The fixed loop afterwards over before."""
        return self.after / self.before

    @property
    def steady(self) -> bool:
        """Whether the machine ran as fast at the end as at the beginning."""
        return 1 / STEADY <= self.drift <= STEADY

    def median(self, name: str) -> float:
        """Nanoseconds of a call."""
        return statistics.median(self.samples[name])

    def pairs(self, name: str, base: str) -> list[float]:
        """Ratios to another call, round by round."""
        return [a / b for a, b in zip(self.samples[name], self.samples[base], strict=True)]

    def sums(self, *names: str, less: Sequence[str] = ()) -> list[float]:
        """Sums of calls less others, round by round."""
        plus = [self.samples[name] for name in names]
        minus = [self.samples[name] for name in less]
        return [
            math.fsum((*(s[n] for s in plus), *(-s[n] for s in minus))) for n in range(self.rounds)
        ]


def take_turns(
    groups: Sequence[Mapping[str, Call]],
    rounds: int,
    seconds: float,
    clock: Callable[[], int] = processor_time,
) -> Series:
    """Every call once a round, until `rounds` or `seconds` are over, of which at least ten rounds
    are run.

    A sample is the least of a few stretches; a stretch repeats a call until it lasts long enough,
    and its value is the mean of its calls. The calls of a group, which will be compared, take turns
    stretch by stretch, in the reverse order every other time, so that they meet the same machine.
    """
    every = [{CALIBRATION: calibrate}, *groups]
    before = _calibrated(clock)
    counts = {name: _repeats(call, clock) for group in every for name, call in group.items()}
    samples: dict[str, list[float]] = {name: [] for name in counts}
    began = time.monotonic()
    for number in range(rounds):
        if number >= _LEAST_ROUNDS and time.monotonic() - began > seconds:
            break
        for group in every:
            for name, sample in _least(group, counts, clock).items():
                samples[name].append(sample)
    return Series(samples, before, _calibrated(clock))


def evidence(values: Sequence[float], scale: float = 1e3) -> dict[str, Any]:
    """Samples and the interval of their median, in microseconds unless told otherwise."""
    found = interval(values)
    return {
        "samples": [round(value / scale, 4) for value in values],
        **span(
            Ratio(found.median / scale, found.low / scale, found.high / scale, found.confidence)
        ),
    }


def span(found: Ratio) -> dict[str, float]:
    """An interval as plain data."""
    return {"low": found.low, "high": found.high, "confidence": found.confidence}


def _repeats(call: Call, clock: Callable[[], int]) -> int:
    """How often a stretch repeats a call; the first call, which warms up, does not count."""
    call()
    taken = max(1.0, min(_stretch(call, 1, clock) for _ in range(2)))
    return max(1, math.ceil(_STRETCH_NS / taken))


def _least(
    group: Mapping[str, Call], counts: Mapping[str, int], clock: Callable[[], int]
) -> dict[str, float]:
    """The least stretch of each call of a group."""
    least = dict.fromkeys(group, math.inf)
    for number in range(_STRETCHES):
        for name in list(group)[:: 1 if number % 2 else -1]:
            least[name] = min(least[name], _stretch(group[name], counts[name], clock))
    return least


def _stretch(call: Call, count: int, clock: Callable[[], int]) -> float:
    began = clock()
    for _ in range(count):
        call()
    return (clock() - began) / count


def _calibrated(clock: Callable[[], int]) -> float:
    one = {CALIBRATION: calibrate}
    times = [_least(one, {CALIBRATION: 8}, clock)[CALIBRATION] for _ in range(9)]
    return statistics.median(times)
