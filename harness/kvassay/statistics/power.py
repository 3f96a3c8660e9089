"""How many paired items show an effect, by Student's t with the noncentral distribution.

The permutation tests have nearly the same power (Lehmann and Romano 2005, section 15.2); tests show
that by simulation. Effects and deviations are in the unit of an item's difference.
"""

from __future__ import annotations

from typing import Final

from scipy import optimize, stats

_MOST_ITEMS: Final = 1_000_000


def power(items: int, effect: float, deviation: float, level: float = 0.05) -> float:
    """The chance that a one-sided test at `level` finds a mean difference of `effect`.

    deviation: of the differences between items. Raises ValueError for fewer than two items.
    """
    if items < 2 or not deviation > 0:
        raise ValueError(f"{items} items and deviation {deviation}: need two and a positive one")
    critical = stats.t.ppf(1.0 - level, items - 1)
    return float(stats.nct.sf(critical, items - 1, effect / deviation * items**0.5))


def required_items(
    effect: float, deviation: float, level: float = 0.05, wanted: float = 0.8
) -> int:
    """The fewest items with which the power is at least `wanted`."""
    below, enough = 1, 2
    while power(enough, effect, deviation, level) < wanted:
        below, enough = enough, 2 * enough
        if enough > _MOST_ITEMS:
            raise ValueError(f"an effect of {effect} at deviation {deviation} needs too many items")
    while enough - below > 1:
        middle = (below + enough) // 2
        if power(middle, effect, deviation, level) < wanted:
            below = middle
        else:
            enough = middle
    return enough


def detectable(items: int, deviation: float, level: float = 0.05, wanted: float = 0.8) -> float:
    """The least mean difference that so many items find with the power `wanted`."""
    found = optimize.brentq(
        lambda ratio: power(items, ratio * deviation, deviation, level) - wanted, 0.0, 20.0
    )
    return float(found) * deviation
