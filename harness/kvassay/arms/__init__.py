"""Arms: what stores keys and values inside a model's forward pass, and what that does to its
predictions."""

from .arm import Arm, parse_arm
from .attention import Stored, StoredAttention, fitted
from .forward import measure
from .outcome import Outcome
from .summary import Row, rows

__all__ = [
    "Arm",
    "Outcome",
    "Row",
    "Stored",
    "StoredAttention",
    "fitted",
    "measure",
    "parse_arm",
    "rows",
]
