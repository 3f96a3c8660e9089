"""Writes small GGUF files for the tests: a complete llama model, or one with a fault."""

from __future__ import annotations

from collections.abc import Callable, Collection
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


def tensors() -> dict[str, Array]:
    """Random weights under their GGUF names."""
    rng = np.random.default_rng(7)
    kv = KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(tokens()), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name, shape in (
            ("attn_norm", (HIDDEN,)),
            ("attn_q", (QUERY_HEADS * HEAD_DIM, HIDDEN)),
            ("attn_k", (kv, HIDDEN)),
            ("attn_v", (kv, HIDDEN)),
            ("attn_output", (HIDDEN, QUERY_HEADS * HEAD_DIM)),
            ("ffn_norm", (HIDDEN,)),
            ("ffn_gate", (FFN, HIDDEN)),
            ("ffn_up", (FFN, HIDDEN)),
            ("ffn_down", (HIDDEN, FFN)),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return {
        name: rng.normal(scale=HIDDEN**-0.5, size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    omit: Collection[str] = (),
    metadata: dict[str, str | int | list[str]] | None = None,
    change: Callable[[dict[str, Array]], None] | None = None,
) -> Path:
    """Write a small llama model.

    omit: keys left out. metadata: keys added or replaced. change: edits the tensors in place.
    """
    writer = gguf.GGUFWriter(path, architecture)
    values: dict[str, str | int | float | list[str] | list[int]] = {
        "general.name": "small",
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": QUERY_HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
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
    weights = tensors()
    if change is not None:
        change(weights)
    for name, array in weights.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
