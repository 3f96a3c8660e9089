"""The page for the tests: exported, driven in Node, and a small model with quantized weights."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from kvassay_backends.web import assets

_DRIVER: Final = Path(__file__).with_name("driver.mjs")
_LEAST_NODE: Final = 20
HIDDEN, FFN, LAYERS, QUERY_HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
_SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES: Final = ("h e", "l l", "Ġ w", "he ll", "hell o")
CHATML: Final = (
    "{% if x %}{{ '<|im_start|>system\nBe brief<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
)


def built() -> list[str]:
    """Variants whose modules are built; skips where there is none."""
    found = list(assets.modules)
    if not found:
        pytest.skip("no WebAssembly module is built: python backends/hatch_build.py wasm")
    return found


def node() -> str:
    """The Node program; skips with the reason where it is missing or too old."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node: install Node 20 or newer")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    major = int(re.findall(r"\d+", version.stdout)[0])
    if major < _LEAST_NODE:
        pytest.skip(f"node is version {major}, older than {_LEAST_NODE}")
    return program


def drive(folder: Path, operation: str, **request: Any) -> Any:
    """The answer of driver.mjs to one request, on the page in `folder`."""
    done = subprocess.run(
        [node(), str(_DRIVER), str(folder)],
        input=json.dumps({"operation": operation, **request}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_model(
    path: Path,
    *,
    omit: Collection[str] = (),
    metadata: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    seed: int = 7,
) -> Path:
    """A small llama model: matrices in Q4_1, embedding in Q8_0, norms in F32.

    omit: keys and tensors left out. metadata: keys added or replaced. kinds: GGUF types of
    tensors stored otherwise.
    """
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {**_metadata(), **(metadata or {})}.items():
        if key not in omit:
            _add(writer, key, value)
    rng = np.random.default_rng(seed)
    for name, shape in _shapes().items():
        weights = rng.normal(scale=HIDDEN**-0.5, size=shape).astype(np.float32)
        default = "F32" if len(shape) == 1 else "Q8_0" if name.startswith("token") else "Q4_1"
        kind = gguf.GGMLQuantizationType[(kinds or {}).get(name, default)]
        if name not in omit:
            writer.add_tensor(name, quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata() -> dict[str, Any]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    pieces = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(hidden))]
    pieces = [*_SPECIALS, *pieces, *(merge.replace(" ", "") for merge in _MERGES)]
    return {
        "general.name": "small",
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": QUERY_HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [3] * len(_SPECIALS) + [1] * (len(pieces) - len(_SPECIALS)),
        "tokenizer.ggml.merges": list(_MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def _shapes() -> dict[str, tuple[int, ...]]:
    queries, kv = QUERY_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(_metadata()["tokenizer.ggml.tokens"]), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name, shape in (
            ("attn_norm", (HIDDEN,)),
            ("attn_q", (queries, HIDDEN)),
            ("attn_k", (kv, HIDDEN)),
            ("attn_v", (kv, HIDDEN)),
            ("attn_output", (HIDDEN, queries)),
            ("ffn_norm", (HIDDEN,)),
            ("ffn_gate", (FFN, HIDDEN)),
            ("ffn_up", (FFN, HIDDEN)),
            ("ffn_down", (HIDDEN, FFN)),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return shapes
