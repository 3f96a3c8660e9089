"""Writes small GGUF files for the tests: complete models of each architecture, or with a fault."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

HIDDEN, FFN, LAYERS, QUERY_HEADS, KV_HEADS, HEAD_DIM = 32, 48, 2, 4, 2, 8
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "Ġ w", "he ll")

Array = npt.NDArray[np.float32]


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    stand_in = {byte: chr(byte) for byte in printable}
    stand_in.update({byte: chr(256 + n) for n, byte in enumerate(hidden)})
    return [stand_in[byte] for byte in range(256)]


def tokens() -> list[str]:
    """Specials, bytes and merged pieces."""
    return [*SPECIALS, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]


@dataclass(frozen=True)
class Form:
    """What a small model looks like. span: of the sliding layers, 0 without any."""

    architecture: str = "llama"
    query_heads: int = QUERY_HEADS
    kv_heads: int = KV_HEADS
    head_dim: int = HEAD_DIM
    layers: int = LAYERS
    span: int = 0

    def metadata(self) -> dict[str, int | float]:
        """Keys of the shape, with the prefix of the architecture."""
        keys: dict[str, int | float] = {
            "block_count": self.layers,
            "context_length": 128,
            "embedding_length": HIDDEN,
            "feed_forward_length": FFN,
            "attention.head_count": self.query_heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.layer_norm_rms_epsilon": 1e-5,
        }
        if self.head_dim * self.query_heads != HIDDEN:
            keys |= {"attention.key_length": self.head_dim, "attention.value_length": self.head_dim}
        if self.architecture != "llama":
            keys["rope.freq_base"] = 1e6
        if self.span:
            keys["attention.sliding_window"] = self.span
        return {f"{self.architecture}.{key}": value for key, value in keys.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors of a layer, by the end of their names."""
        queries, kv = self.query_heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (queries, HIDDEN),
            "attn_k.weight": (kv, HIDDEN),
            "attn_v.weight": (kv, HIDDEN),
            "attn_output.weight": (HIDDEN, queries),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (FFN, HIDDEN),
            "ffn_up.weight": (FFN, HIDDEN),
            "ffn_down.weight": (HIDDEN, FFN),
        }
        if self.architecture == "qwen2":
            shapes |= {"attn_q.bias": (queries,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if self.architecture == "gemma3":
            shapes |= {"attn_q_norm.weight": (self.head_dim,)}
            shapes |= {"attn_k_norm.weight": (self.head_dim,)}
            shapes |= {"post_attention_norm.weight": (HIDDEN,), "post_ffw_norm.weight": (HIDDEN,)}
        return shapes


def tensors(form: Form = Form()) -> dict[str, Array]:
    """Random weights under their GGUF names."""
    rng = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(tokens()), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(form.layers):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in form.shapes().items()}
    return {
        name: rng.normal(scale=HIDDEN**-0.5, size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_gguf(
    path: Path,
    *,
    form: Form = Form(),
    architecture: str = "",
    omit: Collection[str] = (),
    metadata: dict[str, str | int | float | list[str] | list[int] | list[float]] | None = None,
    change: Callable[[dict[str, Array]], None] | None = None,
) -> Path:
    """Write a small model of that form.

    architecture: named instead of the form's. omit: keys left out. metadata: keys added or
    replaced. change: edits the tensors in place.
    """
    writer = gguf.GGUFWriter(path, architecture or form.architecture)
    values: dict[str, str | int | float | list[str] | list[int] | list[float]] = {
        "general.name": "small",
        **form.metadata(),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens(),
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (256 + len(MERGES)),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
    }
    values.update(metadata or {})
    for key, value in values.items():
        if key in omit:
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)
    weights = tensors(form)
    if change is not None:
        change(weights)
    for name, array in weights.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
