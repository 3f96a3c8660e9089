"""ONNX graphs of Llama-architecture models, with the attention of someone's choice.

`build` makes the graph of a GGUF file: weights as stored (4 bits stay 4 bits) or float32.
"""

from .attention import GraphAttention, GroupQuery
from .graph import build
from .linear import Precision

__all__ = ["GraphAttention", "GroupQuery", "Precision", "build"]
