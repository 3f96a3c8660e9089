"""Captured tensors: queries, keys and values of a model run, in a safetensors file.

`kvassay capture` writes such a file from a model of this project, anybody's runtime may write one
(docs/captured.md has the format), and `kvassay gate --tensors` judges backends on it.
"""

from kvassay.captured.provenance import FORMAT, Provenance
from kvassay.captured.reader import CapturedFile, Layer, open_captured
from kvassay.captured.writer import provenance_of, write_captured

__all__ = [
    "FORMAT",
    "CapturedFile",
    "Layer",
    "Provenance",
    "open_captured",
    "provenance_of",
    "write_captured",
]
