"""Turns: everybody runs once a round, so that what the machine does besides hits all alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from .protocol import NotMeasured

#: Thread pools of the one who ran last stop spinning within this.
_PAUSE_SECONDS: Final = 0.01

Turn = Callable[[], Sequence[int]]


@dataclass
class Series:
    """Median ns of each round's runs, and how many runs there were; `lost` says why it ended."""

    rounds: list[float] = field(default_factory=list)
    runs: int = 0
    lost: str = ""


def take_turns(
    turns: Mapping[str, Turn], rounds: int, *, seed: int = 0, pause: float = _PAUSE_SECONDS
) -> dict[str, Series]:
    """Call each turn once a round, in another order each round. A turn returns ns of its runs; one
    that raises NotMeasured drops out with the reason."""
    order = random.Random(seed)
    series = {name: Series() for name in turns}
    for _ in range(rounds):
        for name in order.sample(sorted(turns), len(turns)):
            if series[name].lost:
                continue
            time.sleep(pause)
            try:
                times = turns[name]()
            except NotMeasured as error:
                series[name].lost = str(error)
                continue
            series[name].rounds.append(median(times))
            series[name].runs += len(times)
    return series
