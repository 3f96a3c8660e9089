"""The decoder of the page against the numpy forward: weights, identity, tokens, logits, texts."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import dogfood
import numpy as np
import pytest

import kvassay
from kvassay import models

# Relative RMS of logits. Keys and values are rounded to fp16 on their way into the cache, so a last
# bit of a float32 sum that falls otherwise moves them by 2^-11; measured: up to 4e-4 with fp16.
LOGITS = 2e-3
SOURCES = Path(__file__).resolve().parents[3] / "backends" / "src"
PROMPTS = (1, 17, 40)
#: Fields of a config that the page, which runs Llama's architecture alone, does not have.
OTHER_ARCHITECTURES = {
    *("architecture", "rope_divisor", "softmax_scale"),
    *("span", "global_every", "local_rope_base"),
}


def expected(model: models.Model, prompt: list[int], n: int, preset: str) -> tuple[Any, list[int]]:
    """Logits after the prompt and the greedy tokens, through a cache of the reference backend."""
    backend = kvassay.load("reference")
    spec = kvassay.preset(preset, **model.config.shape)
    with backend.prepare(spec) as cache:
        logits = model.forward(prompt, models.CacheAttention(cache), last_only=True)[0]
    with backend.prepare(spec) as cache:
        greedy = model.greedy(prompt, n, models.CacheAttention(cache))
    return logits, greedy.tolist()


def compare(model: models.Model, found: dict[str, Any], prompts: list[list[int]], n: int) -> None:
    own = {k: v for k, v in asdict(model.config).items() if k not in OTHER_ARCHITECTURES}
    assert {k: found["config"][k] for k in own} == own
    for prompt, run in zip(prompts, found["runs"], strict=True):
        logits, greedy = expected(model, prompt, n, "fp16")
        error = np.asarray(run["logits"]) - logits
        assert np.sqrt(np.mean(error**2) / np.mean(logits**2)) <= LOGITS
        assert run["ids"] == greedy


@pytest.mark.parametrize("kind", ["gqa", "mha", "mqa"])
def test_a_tiny_model_has_the_weights_of_python_to_the_bit_and_its_tokens(
    site: Path, kind: Literal["gqa", "mha", "mqa"]
) -> None:
    prompts = [models.tiny_tokens(n, seed=n).tolist() for n in PROMPTS]
    request = {"model": f"tiny-{kind}", "preset": "fp16", "prompts": prompts, "n": 6}
    found = dogfood.drive(site, "decode", **request)
    compare(models.tiny(kind), found, prompts, 6)  # the config holds the hash of all weights


def test_a_quantized_file_gives_the_logits_of_its_dequantized_weights(
    site: Path, tmp_path: Path
) -> None:
    path = dogfood.write_model(tmp_path / "small.gguf")
    model = models.load(path)
    prompts = [(models.tiny_tokens(n, seed=n) % model.config.vocab).tolist() for n in PROMPTS]
    request = {"model": str(path), "preset": "fp16", "prompts": prompts, "n": 6}
    compare(model, dogfood.drive(site, "decode", **request), prompts, 6)


def test_other_weights_are_noticed(site: Path, tmp_path: Path) -> None:
    other = dogfood.write_model(tmp_path / "other.gguf", seed=8)
    model = models.load(dogfood.write_model(tmp_path / "small.gguf"))
    request = {"model": str(other), "preset": "fp16", "prompts": [[5, 6, 7]], "n": 2}
    found = dogfood.drive(site, "decode", **request)
    with pytest.raises(AssertionError):
        compare(model, found, [[5, 6, 7]], 2)


def test_every_variant_gives_the_same_bits(site: Path, tmp_path: Path) -> None:
    path = dogfood.write_model(tmp_path / "small.gguf")
    variants = [name for name in dogfood.built() if name != "relaxed"]  # a flag in Node 20
    for name in (str(path), "tiny-gqa"):
        prompts = [models.tiny_tokens(250, seed=3).tolist()]
        request = {"model": name, "preset": "turbo", "prompts": prompts, "n": 4}
        first, *others = [dogfood.drive(site, "decode", variant=v, **request) for v in variants]
        assert len(base64.b64decode(first["runs"][0]["dump"])) > 10_000
        assert all(other["runs"] == first["runs"] for other in others)


def test_the_tokenizer_cuts_as_python_does(site: Path, tmp_path: Path) -> None:
    path = dogfood.write_model(tmp_path / "small.gguf")
    pieces = [
        "hello",
        " w",
        "  ",
        "\n",
        "1",
        "٣",
        "½",
        "é",
        "日",
        "🎉",
        "'s",
        "!",
        "<|im_end|>",
        "<|",
    ]
    pieces += ["\u0085", "\ufeff", "\u00a0", "\u2028", "\u0301", "\u001c", "\u200b", "𝟘", "'ll"]
    rng = random.Random(1)
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 25))) for _ in range(300)]
    check_tokens(site, path, [(text, bool(i % 2)) for i, text in enumerate(texts)])


def check_tokens(site: Path, path: Path, texts: list[tuple[str, bool]]) -> None:
    tokenizer = models.load(path).tokenizer
    answers = dogfood.drive(site, "tokens", model=str(path), texts=texts)
    for (text, special), answer in zip(texts, answers, strict=True):
        ids = tokenizer.encode(text, special=special, bos=False).tolist()
        assert answer["ids"] == ids, text
        assert answer["text"] == tokenizer.decode(ids, special=False)


def test_the_kernels_against_binary64(tmp_path: Path) -> None:
    program = tmp_path / "decoder_kernels"
    source = SOURCES / "tests" / "decoder_kernels.c"
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
    include = [f"-I{SOURCES}", f"-I{SOURCES / 'include'}"]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, *include, str(source), "-lm"]
    made = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.model
@pytest.mark.long
def test_smollm2_says_what_it_says_in_python(site: Path) -> None:
    path = models.find_default()
    model = models.load()
    question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    texts = [question, "The three laws of", "Once upon a time"]
    check_tokens(site, path, [(text, True) for text in texts])
    prompts = [model.tokenizer.encode(text).tolist() for text in texts]
    request = {"model": str(path), "preset": "fp16", "prompts": prompts, "n": 12}
    compare(model, dogfood.drive(site, "decode", **request), prompts, 12)
