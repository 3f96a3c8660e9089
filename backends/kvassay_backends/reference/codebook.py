"""Integer codebooks of turbo and the tables of the logarithmic scale (sections 5 and 12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvassay.streams import Codec

from .arithmetic import F32


def _floats(text: str) -> F32:
    return np.array([float.fromhex(word) for word in text.split()], np.float32)


#: Rate -> one (positive centroids, thresholds in units of sigma) a span of channels.
_TABLES: Final[dict[float, tuple[tuple[str, str], ...]]] = {
    2.0: (("3 10", "0x1.f6a4f8p-1"),),
    3.0: (("7 22 39 62", "0x1.012430p-1 0x1.0e7118p+0 0x1.bfc7d8p+0"),),
    4.0: (
        (
            "3 9 15 21 28 36 46 61",
            "0x1.134566p-2 0x1.134566p-1 0x1.9ce818p-1 0x1.190182p+0 "
            "0x1.6f0732p+0 0x1.d64138p+0 0x1.32d004p+1",
        ),
    ),
    2.5: (
        ("9 30", "0x1.f5a7a6p-1"),
        ("5 15 27 43", "0x1.014248p-1 0x1.0e1f32p+0 0x1.c233fep+0"),
    ),
    3.5: (
        ("4 12 21 34", "0x1.03518ep-1 0x1.0b6c1ap+0 0x1.bdb42ap+0"),
        (
            "2 6 10 15 20 26 33 43",
            "0x1.03518ep-2 0x1.03518ep-1 0x1.952f6cp-1 0x1.1ba132p+0 "
            "0x1.74c53ap+0 0x1.de1e5cp+0 0x1.33f0d8p+1",
        ),
    ),
}

#: FULL[m] = 2^(-m/16) and HALF[m] = 2^(-(m + 1/2)/16), rounded.
FULL: Final = _floats(
    "0x1p+0 0x1.ea4afap-1 0x1.d5818ep-1 0x1.c199bep-1 0x1.ae89fap-1 0x1.9c4918p-1 0x1.8ace54p-1 "
    "0x1.7a1148p-1 0x1.6a09e6p-1 0x1.5ab07ep-1 0x1.4bfdaep-1 0x1.3dea64p-1 0x1.306fe0p-1 "
    "0x1.2387a6p-1 0x1.172b84p-1 0x1.0b5586p-1"
)
HALF: Final = _floats(
    "0x1.f50766p-1 0x1.dfc974p-1 0x1.cb720ep-1 0x1.b7f770p-1 0x1.a5503cp-1 0x1.93737cp-1 "
    "0x1.82589ap-1 0x1.71f75ep-1 0x1.6247ecp-1 0x1.5342b6p-1 0x1.44e086p-1 0x1.371a74p-1 "
    "0x1.29e9e0p-1 0x1.1d4874p-1 0x1.11301ep-1 0x1.059b0ep-1"
)


@dataclass(frozen=True)
class Span:
    """Consecutive channels with one codebook: `centroids` in increasing order, one a code."""

    channels: slice
    bits: int
    centroids: NDArray[np.int32]
    thresholds: F32


def spans(codec: Codec, d: int) -> tuple[Span, ...]:
    """The codebooks of a turbo codec over d channels."""
    out = []
    for (start, count, bits), (positive, thresholds) in zip(
        codec.splits(d), _TABLES[codec.bits], strict=True
    ):
        half = [int(word) for word in positive.split()]
        centroids = np.array([-c for c in reversed(half)] + half, np.int32)
        out.append(Span(slice(start, start + count), bits, centroids, _floats(thresholds)))
    return tuple(out)
