"""What noisy timings allow one to say: ratios of pairs, intervals of medians, false alarms.

No assumption about the distribution is made, since timings on shared machines have none that
holds: intervals are those of the sign test, comparisons those of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from scipy.stats import binom, false_discovery_control, mannwhitneyu, norm

#: Pairs under which two series of ratios are not compared: ranks of fewer reach no small rate.
LEAST_PAIRS: Final = 10


@dataclass(frozen=True)
class Ratio:
    """Median of ratios, with a confidence interval of that median."""

    median: float
    low: float
    high: float
    confidence: float


def ratio(times: Sequence[float], base: Sequence[float]) -> Ratio:
    """How many times longer `times` took than `base`, pair by pair."""
    return interval([a / b for a, b in zip(times, base, strict=True)])


def interval(values: Sequence[float]) -> Ratio:
    """The median and an interval of it from the sign test.

    The bounds are the two order statistics between which the true median lies with at least 95 %,
    or the extremes with what they give (under six values), whatever the distribution.
    """
    ordered = sorted(values)
    n = len(ordered)

    lows = np.arange(max(1, n // 2))
    covered = 1 - 2 * binom.cdf(lows, n, 0.5)
    low = int(max(lows[covered >= 0.95], default=0))
    return Ratio(median(ordered), ordered[low], ordered[n - 1 - low], float(covered[low]))


def chance(now: Sequence[float], before: Sequence[float], tolerance: float) -> float:
    """Chance of ratios as high as `now` if they were at most `1 + tolerance` times those before.

    One-sided rank test (Mann and Whitney 1947) of `now` against `before` times `1 + tolerance`.
    """
    margin = math.log1p(tolerance)
    test = mannwhitneyu(np.log(now), np.log(before) + margin, alternative="greater")
    return float(test.pvalue)


def alarms(chances: Sequence[float], rate: float) -> list[bool]:
    """Which of many comparisons to believe, at a rate of false alarms over all of them together.

    The procedure of Benjamini and Hochberg (1995): where nothing changed, the chance that any
    alarm is raised is at most `rate`, however many are compared.
    """
    if not chances:
        return []
    return [bool(adjusted <= rate) for adjusted in false_discovery_control(chances)]


def resolves(
    now: Sequence[float],
    before: Sequence[float],
    tolerance: float,
    slowdown: float,
    power: float,
    rate: float,
) -> bool:
    """Whether series this noisy and this long show a slowdown, beyond a tolerance, with `power`.

    `rate` is that of false alarms of this one comparison. The errors of both medians are read from
    their intervals, the rest is the power of a one-sided test of normal estimates: what is found
    must stand `z(1 - rate) + z(power)` standard errors above the tolerance.
    """
    error = math.hypot(_error(now), _error(before))
    distance = math.log1p(slowdown) - math.log1p(tolerance)
    return distance >= float(norm.ppf(1 - rate) + norm.ppf(power)) * error


def _error(values: Sequence[float]) -> float:
    """Relative standard error of the median, from half the width of its interval."""
    found = interval(values)
    half = math.log(found.high / found.low) / 2
    return half / float(norm.ppf((1 + found.confidence) / 2))
