"""Quality: how far a quantized cache moves attention and predictions away from full precision."""

from .plan import QualitySuite

suite = QualitySuite()

__all__ = ["suite"]
