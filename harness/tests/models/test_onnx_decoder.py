"""A model as a graph, in ONNX Runtime, against the forward pass in numpy over the same cache.

On SmolLM2 logits differ by up to 0.01 (they spread over some 20): sums are in another order, and
a key that lies between two fp16 numbers may then round the other way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_model_smollm2 import CHAT

from kvassay import models, preset
from kvassay.errors import ModelError
from kvassay.models.onnx import Precision
from kvassay.models.onnx.linear import Blocks, read_stored, unpack
from kvassay_backends.ort import backend as provider

BOUND = 0.05
TEXT = "The quick brown fox jumps over the lazy dog. In the beginning " * 5
QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three fruits.",
    "What is 2 plus 3?",
    "Name a famous painter.",
)


@pytest.fixture(scope="module")
def backend() -> Any:
    states = provider.variants()
    return provider.load(next(name for name, state in states.items() if state.runs))


@pytest.fixture(scope="module")
def model() -> models.Model:
    return models.load()


def decoder(backend: Any, model: models.Model, cache: str, precision: Precision) -> Any:
    from kvassay_backends.ort.decoder import Decoder

    spec = preset(cache, **model.config.shape)
    return Decoder(models.find_default(), backend, spec, 512, precision)


def encoded(model: models.Model, text: str) -> list[int]:
    return [int(token) for token in model.tokenizer.encode(text)]


@pytest.mark.model
@pytest.mark.parametrize("cache", ["fp16", "turbo"])
def test_logits_are_those_of_the_numpy_forward(
    backend: Any, model: models.Model, cache: str
) -> None:
    made = decoder(backend, model, cache, "stored")
    tokens = encoded(model, TEXT)
    with backend.prepare(preset(cache, **model.config.shape)) as held:
        attention = models.CacheAttention(held)
        for step in (tokens[:-2], tokens[-2:-1], tokens[-1:]):
            expected = model.forward(step, attention, made.length, last_only=True)[0]
            np.testing.assert_allclose(made.step(step), expected, rtol=0, atol=BOUND)


@pytest.mark.model
def test_inputs_in_eight_bits_choose_the_same_tokens(backend: Any, model: models.Model) -> None:
    """Its products round the inputs, so logits differ; the first choice of every step does not."""
    made = decoder(backend, model, "turbo", "int8")
    tokens = encoded(model, TEXT)
    with backend.prepare(preset("turbo", **model.config.shape)) as held:
        attention = models.CacheAttention(held)
        for step in (tokens[:-2], tokens[-2:-1], tokens[-1:]):
            expected = model.forward(step, attention, made.length, last_only=True)[0]
            found = made.step(step)
            assert found.argmax() == expected.argmax()
            assert np.corrcoef(found, expected)[0, 1] > 0.998


@pytest.mark.model
@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS)
def test_greedy_texts_are_those_of_the_numpy_forward(
    backend: Any, model: models.Model, question: str
) -> None:
    prompt = encoded(model, CHAT.format(question))
    made = decoder(backend, model, "fp16", "stored")
    with backend.prepare(preset("fp16", **model.config.shape)) as held:
        expected = model.greedy(prompt, 64, models.CacheAttention(held))
    assert made.greedy(prompt, 64) == expected.tolist()


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "shape", "bits"),
    [("blk.0.ffn_down.weight", (576, 1536), 4), ("token_embd.weight", (49152, 576), 8)],
)
def test_blocks_are_the_stored_weights(name: str, shape: tuple[int, int], bits: int) -> None:
    file = models.GGUFFile(models.find_default())
    stored = read_stored(file, name, shape)
    assert stored is not None
    assert stored.shape == shape
    blocks = unpack(stored)
    assert (blocks.bits, blocks.shape) == (bits, shape)
    np.testing.assert_allclose(values(blocks), file.tensor(name, shape), rtol=1e-6, atol=1e-7)


@pytest.mark.model
def test_blocks_of_another_shape_are_refused() -> None:
    file = models.GGUFFile(models.find_default())
    with pytest.raises(ModelError, match="has shape"):
        read_stored(file, "blk.0.ffn_down.weight", (1536, 576))


def test_packed_codes_are_in_the_order_of_the_operator() -> None:
    codes = np.arange(64, dtype=np.uint8).reshape(2, 1, 32) % 16
    ones = np.ones((2, 1), np.float32)
    packed = Blocks(4, codes, ones, None).packed()
    assert packed.shape == (2, 1, 16)
    assert packed[0, 0, :2].tolist() == [0x10, 0x32]


def values(blocks: Blocks) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The matrix that blocks stand for."""
    signed = blocks.codes.astype(np.float32) - np.float32(1 << (blocks.bits - 1))
    matrix = signed * blocks.scale[..., None]
    if blocks.rest is not None:
        matrix += blocks.rest[..., None]
    return matrix.reshape(blocks.shape)
