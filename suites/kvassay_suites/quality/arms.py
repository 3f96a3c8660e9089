"""Arms that run freely: the same model, prompts, sampler and random numbers, another cache.

Every arm keeps a ledger of what it was really given. Its digests are in the records, and arms whose
ledgers differ are counted: figures of unequal arms compare nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kvassay.models import Model, Tokens
from kvassay.models.attention import Attention
from kvassay.models.tiny import splitmix64
from kvassay.protocol import FloatArray

from .metrics import Doubles

_STREAM: Final = 0x53414D50  # "SAMP"


@dataclass(frozen=True)
class Sampler:
    """How a token is chosen: the largest logit over temperature plus Gumbel noise of a seed.

    Temperature 0 takes the largest logit and no noise (the Gumbel-max form of sampling, Maddison
    et al. 2014, arXiv 1411.0030). The noise of a step depends on seed and step alone, so arms with
    the same seed meet the same luck for as long as they say the same.
    """

    temperature: float = 0.0
    seed: int = 0

    def noise(self, step: int, vocab: int) -> Doubles:
        """Gumbel noise of a step, (vocab,)."""
        bits = splitmix64((_STREAM << 32) + (self.seed << 20) + (step << 44), vocab)
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        gumbel: Doubles = -np.log(-np.log(uniform))
        return gumbel

    def choose(self, logits: FloatArray, step: int, ledger: Ledger) -> int:
        """The token; what the choice rested on besides the logits goes into the ledger."""
        if self.temperature == 0:
            ledger.write(f"greedy {step}")
            return int(logits.argmax())
        noise = self.noise(step, len(logits))
        ledger.write(f"temperature {self.temperature!r} step {step}", noise.tobytes())
        return int((logits.astype(np.float64) / self.temperature + noise).argmax())


class Ledger:
    """A digest of what an arm was given, in order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def write(self, *parts: str | bytes) -> None:
        """Add entries, each with its length in front."""
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            self._hash.update(len(data).to_bytes(8, "little") + data)

    @property
    def digest(self) -> str:
        """16 hex digits so far."""
        return self._hash.hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """What one arm said after one prompt. given: digest of prompt, sampler and noise."""

    tokens: tuple[int, ...]
    given: str

    def agrees_for(self, other: Run) -> int:
        """Tokens until the first that differs; all of them if none does."""
        pairs = zip(self.tokens, other.tokens, strict=True)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(self.tokens))


#: An attention that has not seen a token, for one sequence; closed after it.
Opened = Callable[[], AbstractContextManager[Attention]]


def free_run(model: Model, opened: Opened, prompt: Tokens, sampler: Sampler, n: int) -> Run:
    """Give the prompt, then let the arm say n tokens, each given back to it as it is.

    No token ends the run, none is repaired, and nothing is tried twice.
    """
    ledger = Ledger()
    ids = np.asarray(prompt, dtype=np.int64)
    ledger.write(model.config.model_hash, ids.tobytes())
    said: list[int] = []
    with opened() as attention:
        row = model.forward(ids, attention, last_only=True)[0]
        while True:
            said.append(sampler.choose(row, len(said), ledger))
            if len(said) == n:
                return Run(tuple(said), ledger.digest)
            position = len(ids) + len(said) - 1
            row = model.forward([said[-1]], attention, position, last_only=True)[0]


@dataclass(frozen=True)
class Pair:
    """Full precision and a cache after the same prompt with the same sampler."""

    prompt: int
    sampler: Sampler
    full: Run
    cached: Run

    @property
    def divergence(self) -> int:
        """Tokens until the first difference."""
        return self.full.agrees_for(self.cached)

    @property
    def unequal(self) -> bool:
        """Whether the two were not given the same bytes."""
        return self.full.given != self.cached.given

    def detail(self) -> dict[str, Any]:
        """For a record."""
        return {
            "prompt": self.prompt,
            "seed": self.sampler.seed,
            "agree": self.divergence,
            "given": [self.full.given, self.cached.given],
            "said": [list(self.full.tokens), list(self.cached.tokens)],
        }


def pairs(
    prompts: Sequence[Tokens],
    samplers: Sequence[Sampler],
    full: Callable[[Tokens, Sampler], Run],
    cached: Callable[[Tokens, Sampler], Run],
) -> Iterator[Pair]:
    """Every prompt with every sampler, by both."""
    for number, prompt in enumerate(prompts):
        for sampler in samplers:
            yield Pair(number, sampler, full(prompt, sampler), cached(prompt, sampler))
