"""Shape and identity of a model."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kvassay.errors import ModelError


@dataclass(frozen=True)
class ModelConfig:
    """Shape and identity of a Llama-architecture model.

    hidden, ffn: widths of the residual stream and of the feed-forward layer. context: the
    longest position the model was trained for. rope_base: base of the RoPE frequencies, pairs
    interleaved over the whole head dim. eps: of every RMSNorm. The hashes are hex sha256 digests.
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
        if self.head_dim % 2:
            raise ModelError(
                f"model {self.name!r}: head_dim {self.head_dim} is odd; RoPE needs pairs"
            )

    @property
    def shape(self) -> dict[str, int]:
        """The part a cache spec needs: layers, query_heads, kv_heads, head_dim."""
        return {
            "layers": self.layers,
            "query_heads": self.query_heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }
