"""Teacher-forced next-token distributions of arms against full precision, text by text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from .._version import __version__
from ..models import (
    CacheAttention,
    Capture,
    FullAttention,
    Model,
    Tokens,
    capture,
    load,
    passage,
    topics_tokens,
)
from ..page import HEADER_SIZE, PageLayout
from ..presets import preset as make_preset
from ..protocol import FloatArray
from ..registry import load as load_backend
from ..spec import LayerSpec, Spec
from .arm import Arm
from .attention import LayerCodecs, Stored, StoredAttention, fitted

#: Where codecs that learn do so: a part of the help topics that is in none of the texts.
_LEARN_FROM: Final = 60_000
_LEARN_TOKENS: Final = 516
#: Rows of logits at a time.
_ROWS: Final = 128


@dataclass(frozen=True)
class Outcome:
    """One arm on one text, sums over `positions`.

    Positions are those whose query meets a sealed page under the policy of 4 sinks, 32 newest
    tokens and pages of 64, for every arm alike. kl: KL(full || arm) of next-token distributions,
    kl_all that over all `tokens`; nll, full_nll: of the true next tokens, under the arm and in full
    precision; all in nats. top1: positions whose likeliest token is the same. digest: of model,
    tokens, arm and version.
    """

    arm: str
    text: str
    digest: str
    tokens: int
    positions: int
    kl: float
    kl_all: float
    nll: float
    full_nll: float
    top1: int
    page_bits: float
    all_in_bits: float
    held_out: bool


FIRST_COUNTED: Final = 4 + 32 + 64 - 1


def measure(
    model: Model,
    arms: Sequence[Arm],
    texts: Sequence[str],
    tokens: int = 1024,
    known: Mapping[str, Outcome] | None = None,
) -> Iterator[Outcome]:
    """Outcomes of every arm on every text, text by text; those `known` by digest are not repeated.

    texts: names of kvassay.models.PASSAGES. Raises InputError for texts that are too short to seal
    a page, SpecError for arms that cannot be made.
    """
    made: dict[str, tuple[LayerCodecs, ...]] = {}
    for name in texts:
        ids = passage(name).tokens(model, tokens)
        full: _Full | None = None
        for arm in arms:
            digest = digest_of(model, ids, arm)
            if known and digest in known:
                yield known[digest]
                continue
            if full is None:
                full = _Full.of(model, ids)
            if arm.preset:
                hidden, stored = _through_a_cache(model, arm, ids)
            else:
                if arm.text not in made:
                    made[arm.text] = fitted(arm, model.config, _to_learn_from(model))
                attention = StoredAttention(arm, made[arm.text])
                hidden, stored = model.hidden(ids, attention), attention.stored
            yield Outcome(
                arm=arm.text,
                text=name,
                digest=digest,
                held_out=passage(name).held_out,
                **_bits(stored.values()),
                **_compare(model, full, hidden),
            )


def digest_of(model: Model, ids: Tokens, arm: Arm) -> str:
    """What an outcome depends on, 16 hex digits."""
    told = json.dumps([__version__, model.config.model_hash, ids.tolist(), arm.text])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def read(path: Path) -> dict[str, Outcome]:
    """Outcomes of an earlier run by digest; a last line that was cut off is left out."""
    found: dict[str, Outcome] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines):
        try:
            outcome = Outcome(**json.loads(line))
        except json.JSONDecodeError:
            if number == len(lines) - 1:
                break
            raise
        found[outcome.digest] = outcome
    return found


def line_of(outcome: Outcome) -> str:
    """An outcome as `read` takes it."""
    return json.dumps(asdict(outcome)) + "\n"


@lru_cache(maxsize=1)
def _to_learn_from(model: Model) -> Capture:
    return capture(model, topics_tokens(model, _LEARN_TOKENS, _LEARN_FROM))


def measure_text(
    source: str, arms: Sequence[Arm], text: str, tokens: int, known: Mapping[str, Outcome]
) -> list[Outcome]:
    """`measure` of one text in a worker process, which loads the model once."""
    return list(measure(_loaded(source), arms, [text], tokens, known))


@lru_cache(maxsize=1)
def _loaded(source: str) -> Model:
    return load(source)


def _through_a_cache(model: Model, arm: Arm, ids: Tokens) -> tuple[FloatArray, dict[int, Stored]]:
    """The pass with a cache of the native backend in the loop, token by token."""
    spec = make_preset(str(arm.preset), **{**model.config.shape, **arm.fields})
    with load_backend("native").prepare(spec) as cache:
        hidden = model.hidden(ids, CacheAttention(cache))
    stored = {n: _stored(spec, layer, len(ids)) for n, layer in enumerate(spec.layer_specs)}
    return hidden, stored


def _stored(spec: Spec, layer: LayerSpec, tokens: int) -> Stored:
    pages = layer.sealed(tokens)
    token = 2 * layer.kv_heads * layer.head_dim
    frozen = (layer.key_centre == "frozen") + (layer.value_centre == "frozen")
    return Stored(
        pages=pages * (PageLayout(layer).size - HEADER_SIZE),
        fitted=token * frozen if pages else 0,
        fp16=2 * token * (tokens - pages * layer.page_tokens),
        values=token * pages * layer.page_tokens,
        all_values=token * tokens,
    )


def _bits(stored: Iterable[Stored]) -> dict[str, float]:
    layers = list(stored)
    pages, numbers = sum(one.pages for one in layers), sum(one.values for one in layers)
    held = sum(one.pages + one.fitted + one.fp16 for one in layers)
    return {
        "page_bits": 8 * pages / numbers if numbers else 16.0,
        "all_in_bits": 8 * held / sum(one.all_values for one in layers),
    }


@dataclass(frozen=True)
class _Full:
    """Full precision on a text: logits less their maxima, float32 (tokens, vocab)."""

    ids: Tokens
    logits: FloatArray

    @classmethod
    def of(cls, model: Model, ids: Tokens) -> _Full:
        hidden = model.hidden(ids, FullAttention())
        logits = np.empty((len(ids), model.config.vocab), np.float32)
        for begin in range(0, len(ids), _ROWS):
            rows = slice(begin, begin + _ROWS)
            logits[rows] = _shifted(model.logits(hidden[rows]))
        return cls(ids, logits)


def _compare(model: Model, full: _Full, hidden: FloatArray) -> dict[str, Any]:
    """Sums over positions; float32 exponentials, whose rounding is far below 1e-6 nats."""
    kl, top1, nll, full_nll = [], [], [], []
    last = len(full.ids) - 1  # it has no next token, and is cut off below
    following = np.append(full.ids[1:], 0)
    for begin in range(0, len(full.ids), _ROWS):
        rows = slice(begin, begin + _ROWS)
        p, q = full.logits[rows], _shifted(model.logits(hidden[rows]))
        weight = np.exp(p)
        total = weight.sum(axis=-1)
        log_p, log_q = np.log(total), np.log(np.exp(q).sum(axis=-1))
        expected = np.einsum("rv,rv->r", weight, p - q) / total
        kl.append(np.maximum(expected + (log_q - log_p), 0))
        top1.append(p.argmax(axis=-1) == q.argmax(axis=-1))
        at = np.arange(len(p)), following[rows]
        nll.append(log_q - q[at])
        full_nll.append(log_p - p[at])
    every, same = np.concatenate(kl).astype(np.float64), np.concatenate(top1)
    counted = slice(FIRST_COUNTED, last)
    return {
        "tokens": len(full.ids),
        "positions": last - FIRST_COUNTED,
        "kl": float(every[counted].sum()),
        "kl_all": float(every.sum()),
        "nll": float(np.concatenate(nll)[counted].sum(dtype=np.float64)),
        "full_nll": float(np.concatenate(full_nll)[counted].sum(dtype=np.float64)),
        "top1": int(same[counted].sum()),
    }


def _shifted(logits: FloatArray) -> FloatArray:
    out: FloatArray = logits - logits.max(axis=-1, keepdims=True)
    return out
