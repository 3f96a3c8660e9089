"""What sets the supported architectures apart: decoders with RMSNorm, RoPE and gated FFNs."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

RopeOrder = Literal["interleaved", "halves"]


@dataclass(frozen=True)
class Architecture:
    """How a forward pass differs from Llama's.

    rope_order: which channels RoPE turns together, (2i, 2i+1) or (i, i + d/2), as weights lie in
    GGUF files. biases: of queries, keys and values. head_norms: RMSNorm of each query and key
    head before RoPE. sandwich: norms behind attention and feed-forward too. scaled_embedding:
    rows of the embedding times sqrt(hidden). activation: of the gate. sliding: some layers attend
    the newest tokens alone and turn keys by a RoPE base of their own.
    """

    name: str
    rope_order: RopeOrder = "interleaved"
    biases: bool = False
    head_norms: bool = False
    sandwich: bool = False
    scaled_embedding: bool = False
    activation: Literal["silu", "gelu_tanh"] = "silu"
    sliding: bool = False


#: llama: Touvron et al. 2023. qwen2: Yang et al. 2024. gemma3: Gemma Team 2025, arXiv 2503.19786.
ARCHITECTURES: Final = MappingProxyType(
    {
        one.name: one
        for one in (
            Architecture("llama"),
            Architecture("qwen2", rope_order="halves", biases=True),
            Architecture(
                "gemma3",
                rope_order="halves",
                head_norms=True,
                sandwich=True,
                scaled_embedding=True,
                activation="gelu_tanh",
                sliding=True,
            ),
        )
    }
)
