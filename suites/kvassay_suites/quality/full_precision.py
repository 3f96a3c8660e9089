"""The full-precision run that everything else is compared with: a fact about the model alone."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from kvassay.models import hidden_nll, question_tokens
from kvassay.records import Record
from kvassay.suite import Target

from .measured import REAL, Origin
from .real_model import TEXT_OFFSET, fixed_text, real_model

QUESTION: Final = "What is the capital of France?"
ANSWER_TOKENS: Final = 8


def measure(model: str, tokens: int) -> list[Record]:
    """Perplexity of the fixed text, and whether the greedy answer is stable."""
    loaded = real_model(model)
    captured = fixed_text(model, tokens)
    origin = Origin(Target("full precision", ""), "", REAL)
    nll = hidden_nll(loaded, captured.hidden, captured.tokens)
    prompt = question_tokens(loaded, QUESTION)
    answer = loaded.greedy(prompt, ANSWER_TOKENS, loaded.full_attention())
    # The same answer again, this time in one pass over prompt and answer.
    whole = loaded.forward(np.concatenate([prompt, answer[:-1]]), loaded.full_attention())
    again = whole[len(prompt) - 1 :].argmax(axis=-1)
    return [
        origin.record(
            "perplexity",
            math.exp(float(nll.mean())),
            "perplexity",
            len(nll),
            "full precision, fixed text",
            text=captured.digest,
            offset=TEXT_OFFSET,
            model=captured.config.name,
            model_hash=captured.config.model_hash,
        ),
        origin.record(
            "greedy_unstable",
            int((answer != again).sum()),
            "tokens",
            len(answer),
            "full precision",
            prompt=loaded.tokenizer.decode(prompt),
            answer=loaded.tokenizer.decode(answer),
        ),
    ]
