"""Fitting a cache to a model: codecs for each layer's keys and values, by what they cost the
model's predictions, confirmed on texts that had no say."""

from .candidates import Choice, Stored
from .fit import confirm, measured_losses, pieces
from .losses import Losses
from .target import Target, choose

__all__ = [
    "Choice",
    "Losses",
    "Stored",
    "Target",
    "choose",
    "confirm",
    "measured_losses",
    "pieces",
]
