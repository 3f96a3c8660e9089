"""Statistics of paired measurements: intervals, tests, many tests at once, sample sizes."""

from .bootstrap import mean_interval, ratio_interval, ratio_upper_bound
from .holm import holm
from .permutation import paired_p_value
from .power import detectable, power, required_items

__all__ = [
    "detectable",
    "holm",
    "mean_interval",
    "paired_p_value",
    "power",
    "ratio_interval",
    "ratio_upper_bound",
    "required_items",
]
