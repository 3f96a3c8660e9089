"""Several tests at once: the chance of any false alarm stays below the level (Holm 1979)."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values by name, to be compared with the level itself.

    The k-th smallest of m is multiplied by m - k + 1, never less than the one before, at most 1.
    scipy adjusts for the rate of false discoveries alone; statsmodels has Holm, and pandas with it.
    """
    adjusted: dict[str, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = least
    return adjusted
