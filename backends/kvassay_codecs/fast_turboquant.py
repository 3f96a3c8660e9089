"""Fast-TurboQuant: TurboQuant with signs and one Hadamard transform for the dense rotation.

Algorithm 1 of arXiv 2504.19874 otherwise. As good on Gaussian input; on a one-hot vector every
coordinate has the same magnitude after one round, so that the codebook meets a single number.
"""

from __future__ import annotations

from typing import Any

from .turboquant import TurboQuantMSE


class FastTurboQuant(TurboQuantMSE):
    """Codes and fp16 |x| after one round of signs and Hadamard."""

    paper = "arXiv 2504.19874, Algorithm 1, with a Hadamard rotation"
    granularity = "vector"
    claim = "as TurboQuant on Gaussian input"
    label = "corroborated"

    def __init__(self, *, rotation: str = "one-round", **common: Any) -> None:
        super().__init__(rotation=rotation, **common)
