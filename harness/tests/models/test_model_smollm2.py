"""The real model: SmolLM2-135M-Instruct in Q4_1.

The exact greedy texts hold across BLAS builds, because along each path the best token leads
the second by at least 0.02 in logits, while another order of summation moves logits by about
1e-4. The prompts were chosen for that margin, and it is asserted.
"""

from __future__ import annotations

import jinja2
import numpy as np
import pytest

from kvassay import models

pytestmark = pytest.mark.model

MARGIN = 0.02
CHAT = "<|im_start|>system\nYou are a helpful assistant. Answer clearly and briefly.<|im_end|>\n"
CHAT += "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def model() -> models.Model:
    return models.load()


def test_shape_and_identity(model: models.Model) -> None:
    cfg = model.config
    assert cfg.shape == {"layers": 30, "query_heads": 9, "kv_heads": 3, "head_dim": 64}
    assert (cfg.hidden, cfg.ffn, cfg.vocab, cfg.context) == (576, 1536, 49152, 8192)
    assert cfg.rope_base == 100000.0
    assert cfg.eps == pytest.approx(1e-5)
    assert cfg.model_hash == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_tokens(model: models.Model) -> None:
    tokenizer = model.tokenizer
    text = "In 2024, it's hello world!"
    assert tokenizer.encode(text).tolist() == [
        *(788, 216, 34, 32, 34, 36, 28),
        *(357, 506, 33662, 905, 17),
    ]
    assert len(tokenizer.specials) == 17
    assert (tokenizer.bos, tokenizer.eos) == (1, 2)
    for text in (models.perplexity_text().text, CHAT.format("größe – 漢字 🙂")):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_rendered_dialogue_is_the_chat_template(model: models.Model) -> None:
    template = jinja2.Template(model.tokenizer.template)
    for chat in models.dialogues():
        messages = [{"role": "system", "content": "Be brief."}]
        messages += [{"role": turn.role, "content": turn.content} for turn in chat.turns]
        assert models.render(chat, "Be brief.") == template.render(messages=messages)


def test_perplexity(model: models.Model) -> None:
    """7.517 over the 1416 tokens of the text as CPython 3.11 ships it."""
    text, sha256 = models.perplexity_text()
    tokens = model.tokenizer.encode(text)
    found = models.perplexity(model, tokens, models.FullAttention())
    known = sha256 == "88e613b94beadd67077c4769badb46799a7c33dbfa12fb644fa6187f8df11d83"
    assert found == pytest.approx(7.517, abs=0.01 if known else 1.0)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (
            CHAT.format("Name three primary colors."),
            "The primary colors are:\n\nRed (R)\nBlue (B)\nYellow (Y)<|im_end|>\n<|im_end|>",
        ),
        (
            CHAT.format("How do I boil an egg?"),
            "To boil an egg, you need to heat it to a high temperature. First, you need to heat "
            "the water to",
        ),
        (
            "Once upon a time",
            ", the city of Nova Haven was a thriving metropolis, with towering skyscrapers and "
            "bustling streets. But as the years went by",
        ),
    ],
    ids=["colors", "egg", "once"],
)
def test_greedy_text(model: models.Model, prompt: str, expected: str) -> None:
    tokens = model.tokenizer.encode(prompt)
    chosen = model.greedy(tokens, 24, models.FullAttention())
    assert model.tokenizer.decode(chosen) == expected
    path = np.concatenate([tokens, chosen[:-1]])
    rows = model.hidden(path, models.FullAttention())[len(tokens) - 1 :]
    best = np.sort(model.logits(rows), axis=-1)
    np.testing.assert_array_equal(model.logits(rows).argmax(-1), chosen)
    assert (best[:, -1] - best[:, -2]).min() > MARGIN


def test_capture_covers_every_layer(model: models.Model) -> None:
    got = models.capture(model, models.topics_tokens(model, 96))
    assert len(got.q) == len(got.k) == len(got.v) == 30
    assert {a.shape for a in got.q} == {(96, 9, 64)}
    assert {a.shape for a in (*got.k, *got.v)} == {(96, 3, 64)}
    assert all(np.isfinite(a).all() for a in (*got.q, *got.k, *got.v))


def test_a_pass_token_by_token_equals_one_call(model: models.Model) -> None:
    tokens = models.topics_tokens(model, 24)
    attention = models.FullAttention()
    steps = [model.hidden(tokens[t : t + 1], attention, start=t) for t in range(len(tokens))]
    whole = model.hidden(tokens, models.FullAttention())
    np.testing.assert_allclose(np.concatenate(steps), whole, atol=1e-3)
    assert float(np.abs(whole).max()) > 5
