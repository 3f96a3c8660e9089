"""Shape and identity of a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kvassay.errors import ModelError
from kvassay.models.architecture import ARCHITECTURES, Architecture
from kvassay.spec import Rope


@dataclass(frozen=True)
class ModelConfig:
    """Shape and identity of a model.

    hidden, ffn: widths of the residual stream and of the feed-forward layer. context: the
    longest position the model was trained for. rope_base: base of the RoPE frequencies, over the
    whole head dim. rope_divisor: positions are divided by it (linear scaling). eps: of every
    RMSNorm. The hashes are hex sha256 digests. softmax_scale: None is 1/sqrt(head_dim).

    span: tokens that a sliding layer attends, None where all layers attend all. Of every
    global_every layers the last is global. Sliding layers have local_rope_base and no divisor.
    """

    name: str
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    ffn: int
    vocab: int
    context: int
    rope_base: float
    eps: float
    model_hash: str
    tokenizer_hash: str
    template_hash: str
    architecture: str = "llama"
    rope_divisor: float = 1.0
    softmax_scale: float | None = None
    span: int | None = None
    global_every: int = 1
    local_rope_base: float = 10000.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", "float") and not value > 0:
                raise ModelError(f"model {self.name!r}: {field.name} is {value}, must be positive")
        if self.query_heads % self.kv_heads:
            raise ModelError(
                f"model {self.name!r}: kv_heads {self.kv_heads} does not divide "
                f"query_heads {self.query_heads}"
            )
        if self.architecture not in ARCHITECTURES:
            raise ModelError(
                f"model {self.name!r}: architecture {self.architecture!r} is not supported; "
                f"supported: {', '.join(ARCHITECTURES)}"
            )
        if self.span is not None and self.span < 1:
            raise ModelError(f"model {self.name!r}: span is {self.span}, must be positive")
        if self.head_dim % 2:
            raise ModelError(
                f"model {self.name!r}: head_dim {self.head_dim} is odd; RoPE needs pairs"
            )

    @property
    def family(self) -> Architecture:
        """What the forward pass does differently from Llama's."""
        return ARCHITECTURES[self.architecture]

    @property
    def spans(self) -> tuple[int | None, ...]:
        """Tokens that each layer attends, the newest; None: all."""
        return tuple(
            self.span if (layer + 1) % self.global_every else None for layer in range(self.layers)
        )

    def rope_of(self, layer: int) -> tuple[float, float]:
        """RoPE base of a layer, and what its positions are divided by."""
        if self.spans[layer] is None:
            return self.rope_base, self.rope_divisor
        return self.local_rope_base, 1.0

    @property
    def rope(self) -> Rope:
        """The RoPE that keys went through, as the identity of a spec names it."""
        scaling = [] if self.rope_divisor == 1 else [f"linear {self.rope_divisor:g}"]
        if self.span is not None:
            scaling.append(f"base {self.local_rope_base:g} in sliding layers")
        order = self.family.rope_order
        return Rope(self.rope_base, self.head_dim, order, ", ".join(scaling) or "none")

    @property
    def shape(self) -> dict[str, Any]:
        """The part a cache spec needs: layers, query_heads, kv_heads, head_dim.

        Where the model has them also softmax_scale and, as layer_overrides, the span of sliding
        layers, without sinks: a sink is attended outside the span, which the model does not do.
        """
        shape: dict[str, Any] = {
            "layers": self.layers,
            "query_heads": self.query_heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }
        if self.softmax_scale is not None:
            shape["softmax_scale"] = self.softmax_scale
        sliding = {
            layer: {"span": span, "sinks": 0}
            for layer, span in enumerate(self.spans)
            if span is not None
        }
        return {**shape, "layer_overrides": sliding} if sliding else shape
