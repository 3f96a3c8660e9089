"""How long a model says the same with a cache as in full precision, greedy and sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Final

import numpy as np

from kvassay.models import (
    CacheAttention,
    Model,
    Tokens,
    question_tokens,
    token_digest,
    topics_tokens,
)
from kvassay.models.attention import Attention
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.suite import Target

from . import metrics
from .arms import Pair, Run, Sampler, free_run, pairs
from .intervals import mean_interval
from .measured import REAL, Origin, load
from .real_model import fixed_text, model_spec, real_model
from .sharing import share

#: Tokens of a passage: enough to seal pages behind a window of 128.
PASSAGE: Final = 280
#: Characters of the help topics where the passages begin.
OFFSETS: Final = (20_000, 50_000, 90_000)
REQUEST: Final = "\n\nExplain the text above in your own words."
TOKENS: Final = 32
GREEDY: Final = (Sampler(),)
SAMPLED: Final = tuple(Sampler(temperature=0.8, seed=seed) for seed in (1, 2, 3))


def measure(
    backend: str,
    variant: str,
    preset: str,
    model: str,
    tokens: int,
    followers: Sequence[tuple[str, str]] = (),
    said: int = TOKENS,
) -> list[Record]:
    """Tokens until the first difference, and whether both arms were given the same bytes.

    followers: exact backends that take over the records once their bits are shown to be equal, on
    the first `tokens` of the fixed text. said: tokens that each arm says.
    """
    target = Target(backend, variant)
    loaded = load(target)
    network = real_model(model)
    prompts = _prompts(model)

    def cached(prompt: Tokens, sampler: Sampler) -> Run:
        return run_cached(network, loaded, preset, prompt, sampler, said)

    def full(prompt: Tokens, sampler: Sampler) -> Run:
        return _full(model, tuple(prompt.tolist()), sampler, said)

    found = list(pairs(prompts, (*GREEDY, *SAMPLED), full, cached))
    records = divergence_records(Origin(target, preset, REAL), found, prompts, said)
    return share(records, target, followers, preset, fixed_text(model, tokens), "free running")


def run_cached(
    model: Model, backend: Backend, preset: str, prompt: Tokens, sampler: Sampler, tokens: int
) -> Run:
    """One arm with a cache of that backend, query by query, the prompt too."""

    @contextmanager
    def opened() -> Iterator[Attention]:
        spec = model_spec(preset, model.config, token_digest(prompt))
        with backend.prepare(spec) as cache:
            yield CacheAttention(cache)

    return free_run(model, opened, prompt, sampler, tokens)


def divergence_records(
    origin: Origin, found: Sequence[Pair], prompts: Sequence[Tokens], tokens: int
) -> list[Record]:
    """Greedy and sampled divergence, and the number of pairs that were not given the same."""
    shared = {"prompts": [token_digest(prompt) for prompt in prompts], "tokens": tokens}
    records: list[Record] = []
    for name, samplers in (("greedy", GREEDY), ("sampled", SAMPLED)):
        mine = [pair for pair in found if pair.sampler in samplers]
        agree = np.array([pair.divergence for pair in mine], dtype=np.float64)
        records.append(
            origin.record(
                f"{name}_divergence",
                metrics.mean(agree),
                f"tokens of {tokens}, mean",
                len(mine),
                "free running",
                interval=mean_interval(agree),
                never=int((agree == tokens).sum()),
                temperature=samplers[0].temperature,
                runs=[pair.detail() for pair in mine],
                **shared,
            )
        )
    unequal = [pair for pair in found if pair.unequal]
    records.append(
        origin.record(
            "arms_unequal",
            len(unequal),
            "runs",
            len(found),
            "free running",
            given=sorted({pair.full.given for pair in found}),
            differing=[pair.detail()["given"] for pair in unequal],
            **shared,
        )
    )
    return records


@lru_cache(maxsize=1)
def _prompts(model: str) -> tuple[Tokens, ...]:
    network = real_model(model)
    passages = (topics_tokens(network, PASSAGE, offset) for offset in OFFSETS)
    texts = (network.tokenizer.decode(passage, special=False) for passage in passages)
    return tuple(question_tokens(network, text + REQUEST) for text in texts)


@lru_cache(maxsize=64)
def _full(model: str, prompt: tuple[int, ...], sampler: Sampler, tokens: int) -> Run:
    network = real_model(model)
    return free_run(
        network, lambda: nullcontext(network.full_attention()), np.array(prompt), sampler, tokens
    )
