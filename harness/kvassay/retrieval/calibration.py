"""Calibration: a shift and a gain for each channel after the rotation, fitted once and frozen.

After the rotation, not before (a fit before it is undone by it). "mean" takes off what all vectors
have in common: a score has that exactly, and only what vectors differ by is coded. For the others
two quantiles of each channel over a sample are put where the codebook has its ends. "5-95" takes
the 5th and 95th percentiles onto the outer centroids, as TurboVec first did; "outer" takes the
quantiles that the outer centroids have in a normal distribution, which differ with the number of
bits, as TurboVec does since.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from ..errors import InputError
from .code import VectorCode
from .exact import norms
from .protocol import F32, Affine, Scorer

KINDS: Final = ("5-95", "outer", "mean")
#: Vectors that must lie beyond each of the two quantiles on average.
_BEYOND: Final = 8
_FEWEST: Final = 256
#: A channel this much narrower or wider than the others tells nothing that a fit could use.
_NARROW: Final = 1 / 64
_WIDE: Final = 64.0


@dataclass(frozen=True)
class Calibration:
    """What an index was calibrated with: the kind, the size of the sample, and the fit."""

    kind: str
    samples: int
    affine: Affine


def lower_quantile(code: VectorCode, kind: str) -> float:
    """The lower of the two quantiles; the other is as far from the top."""
    return 0.05 if kind == "5-95" else NormalDist().cdf(-code.outer)


def samples_needed(code: VectorCode, kind: str) -> int:
    """How many vectors a fit takes at least."""
    if kind == "mean":
        return _FEWEST
    return max(_FEWEST, int(np.ceil(_BEYOND / lower_quantile(code, kind))))


def fit(code: VectorCode, scorer: Scorer, sample: F32, kind: Any) -> Calibration:
    """A calibration from sample (n, dim). Raises InputError on too few or degenerate samples."""
    if kind not in KINDS:
        raise InputError(f"calibrate: kind {kind!r} is not one of {', '.join(KINDS)}")
    rotated = scorer.rotate(code, sample)
    size = norms(rotated)
    rotated, size = rotated[size > 0], size[size > 0]
    needed = samples_needed(code, kind)
    if len(rotated) < needed:
        raise InputError(
            f"calibrate: {len(rotated)} vectors that are not zero; {kind!r} at {code.bits} bits "
            f"takes {needed}"
        )
    if kind == "mean":
        _check_spread(rotated.std(axis=0, dtype=np.float64))
        mean = rotated.mean(axis=0, dtype=np.float64)
        return Calibration(kind, len(rotated), Affine(mean.astype(np.float32), None))
    w = rotated * (np.sqrt(code.channels) / size)[:, np.newaxis]
    low = lower_quantile(code, kind)
    ends = np.quantile(w, (low, 1 - low), axis=0)
    spread = ends[1] - ends[0]
    _check_spread(spread)
    gain = (2 * code.outer / spread).astype(np.float32)
    shift = ((ends[0] + ends[1]) / 2).astype(np.float32)
    return Calibration(kind, len(rotated), Affine(shift, gain))


def _check_spread(spread: Any) -> None:
    typical = float(np.median(spread))
    bad = ~((spread > _NARROW * typical) & (spread < _WIDE * typical) & (spread > 0))
    if bad.any():
        channel = int(np.argmax(bad))
        raise InputError(
            f"calibrate: degenerate sample: rotated channel {channel} spans {spread[channel]:.3g}, "
            f"the median channel {typical:.3g}; give a sample that varies, without repeated vectors"
        )
