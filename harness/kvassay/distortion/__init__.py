"""Rate and distortion of codecs on the same inputs: data, figures, table, plot."""

from .data import KINDS, DataSet, captured, synthetic
from .figures import Figures, measure

__all__ = ["KINDS", "DataSet", "Figures", "captured", "measure", "synthetic"]
