"""One conversation of a family with one arm: the unit of work of the task families."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from kvassay.errors import KvassayError
from kvassay.models import CacheAttention, FullAttention, token_digest
from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.suite import Target

from ..fidelity import first_sealed
from ..measured import REAL, Origin, load
from ..real_model import model_spec, real_model
from . import FAMILIES
from .scoring import Script, score, script

CHECK: Final = "task_items"


def measure(
    backend: str, variant: str, preset: str, model: str, family: str, number: int, digest: str
) -> list[Record]:
    """Score every item of a conversation with the cache in the loop, query by query.

    number: of the conversation in its family. digest: of the conversation, as it was planned;
    KvassayError where this process has another text.
    """
    talk, full = _full_pass(model, family, number, digest)
    loaded = load(Target(backend, variant))
    config = real_model(model).config
    tokens = token_digest(talk.tokens)
    spec = model_spec(preset, config, tokens)
    with loaded.prepare(spec) as cache:
        found = real_model(model).hidden(talk.tokens, CacheAttention(cache))
    items = score(real_model(model), talk, full, found)
    nll, full_nll = math.fsum(items["nll"]), math.fsum(items["full_nll"])
    sealed = first_sealed(spec.layer(0))
    return [
        Origin(Target(backend, variant), preset, REAL).record(
            CHECK,
            nll / full_nll - 1.0,
            "relative rise of NLL",
            sum(items["tokens"]),
            f"{family} {number}",
            family=family,
            number=number,
            digest=digest,
            text=tokens,
            model_hash=config.model_hash,
            length=len(talk.tokens),
            unsealed=sum(question.answer.start - 1 < sealed for question in talk.questions),
            items=items,
        )
    ]


@lru_cache(maxsize=2)
def _full_pass(model: str, family: str, number: int, digest: str) -> tuple[Script, FloatArray]:
    """The conversation as tokens, and its hidden states in full precision, (tokens, hidden)."""
    conversation = FAMILIES[family].conversations[number]
    if conversation.digest != digest:
        raise KvassayError(
            f"{family} {number}: this process has conversation {conversation.digest[:12]}, "
            f"{digest[:12]} was planned; install the same kvassay everywhere"
        )
    talk = script(real_model(model), conversation)
    return talk, real_model(model).hidden(talk.tokens, FullAttention())
