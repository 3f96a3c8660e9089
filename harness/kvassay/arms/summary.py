"""Outcomes over texts: one row an arm, sorted by page bits, with what beats it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from ..statistics.bootstrap import mean_interval
from .outcome import Outcome

_LABEL: Final = 48


@dataclass(frozen=True)
class Row:
    """An arm over several texts, every position alike.

    kl: mean over positions, nats, with its 95 % interval (None without blocks); kl_all over all
    tokens. worst: the largest mean of a text.
    perplexity_rise: relative. top1: share of positions. loses_to: the arm of least KL among those
    of no more page bits, if it is another.
    """

    arm: str
    texts: int
    positions: int
    page_bits: float
    all_in_bits: float
    kl: float
    kl_all: float
    worst: float
    perplexity_rise: float
    top1: float
    kl_low: float | None = None
    kl_high: float | None = None
    loses_to: str | None = None

    @property
    def label(self) -> str:
        """The name in a plot, cut where layers are many."""
        return self.arm if len(self.arm) <= _LABEL else f"{self.arm[: _LABEL - 1]}…"

    @property
    def loss(self) -> float:
        """The figure that arms are ranked by."""
        return self.kl

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """Rows of all arms by page bits."""
    arms: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.arm, []).append(outcome)
    ordered = sorted((_row(arm, found) for arm, found in arms.items()), key=_place)
    return [replace(row, loses_to=_better(row, ordered)) for row in ordered]


def _row(arm: str, found: Sequence[Outcome]) -> Row:
    positions = sum(one.positions for one in found)
    rise = sum(one.nll - one.full_nll for one in found) / positions
    low, high = _interval(found)
    return Row(
        arm=arm,
        texts=len(found),
        positions=positions,
        page_bits=_mean([one.page_bits for one in found]),
        all_in_bits=_mean([one.all_in_bits for one in found]),
        kl=sum(one.kl for one in found) / positions,
        kl_all=sum(one.kl_all for one in found) / sum(one.tokens for one in found),
        worst=max(one.kl / one.positions for one in found),
        perplexity_rise=math.expm1(rise),
        top1=sum(one.top1 for one in found) / positions,
        kl_low=low,
        kl_high=high,
    )


def _interval(found: Sequence[Outcome]) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean KL, by resampling blocks of positions."""
    blocks = np.array([kl for one in found for kl in one.blocks], np.float64)
    return mean_interval(blocks) if len(blocks) > 1 else (None, None)


def _place(row: Row) -> tuple[float, float]:
    return row.page_bits, row.kl


def _better(row: Row, ordered: Sequence[Row]) -> str | None:
    # A hundredth of a bit is no reason to call two arms of different rates.
    rivals = [other for other in ordered if other.page_bits <= row.page_bits + 0.005]
    best = min(rivals, key=lambda other: other.kl)
    return None if best.kl >= row.kl else best.arm


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
