"""Teacher-forced next-token distributions of arms against full precision, text by text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..errors import InputError
from ..models import (
    CacheAttention,
    Capture,
    Model,
    Tokens,
    capture,
    passage,
    topics_tokens,
)
from ..page.layout import HEADER_SIZE, PageLayout
from ..presets import preset as make_preset
from ..protocol import FloatArray
from ..registry import load as load_backend
from ..spec import LayerSpec, Spec
from .arm import Arm
from .attention import LayerCodecs, Stored, StoredAttention, fitted
from .outcome import BLOCK, Outcome, digest_of

#: Where codecs that learn do so: a part of the help topics that is in none of the texts.
_LEARN_FROM: Final = 60_000
_LEARN_TOKENS: Final = 516
#: Rows of logits at a time.
_ROWS: Final = 128
#: The first position that counts: 4 sinks, a window of 32, a page of 64 tokens.
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
    if tokens < FIRST_COUNTED + 2:
        raise InputError(f"arms: {tokens} tokens seal no page; give {FIRST_COUNTED + 2} or more")
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
                attention = StoredAttention(arm, made[arm.text], model.config)
                hidden, stored = model.hidden(ids, attention), attention.stored
            page_bits, all_in_bits = _bits(stored.values())
            yield Outcome(
                arm=arm.text,
                model=model.config.name,
                text=name,
                held_out=passage(name).held_out,
                digest=digest,
                page_bits=page_bits,
                all_in_bits=all_in_bits,
                **_compare(model, full, hidden),
            )


@lru_cache(maxsize=1)
def _to_learn_from(model: Model) -> Capture:
    return capture(model, topics_tokens(model, _LEARN_TOKENS, _LEARN_FROM))


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


def _bits(stored: Iterable[Stored]) -> tuple[float, float]:
    """Page bits and all-in bits over all layers."""
    layers = list(stored)
    pages, numbers = sum(one.pages for one in layers), sum(one.values for one in layers)
    held = sum(one.pages + one.fitted + one.fp16 for one in layers)
    everything = sum(one.all_values for one in layers)
    return 8 * pages / numbers if numbers else 16.0, 8 * held / everything


@dataclass(frozen=True)
class _Full:
    """Full precision on a text: logits less their maxima, float32 (tokens, vocab)."""

    ids: Tokens
    logits: FloatArray

    @classmethod
    def of(cls, model: Model, ids: Tokens) -> _Full:
        hidden = model.hidden(ids, model.full_attention())
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
        "blocks": tuple(
            float(every[begin : min(begin + BLOCK, last)].mean())
            for begin in range(FIRST_COUNTED, last, BLOCK)
        ),
        "kl_all": float(every.sum()),
        "nll": float(np.concatenate(nll)[counted].sum(dtype=np.float64)),
        "full_nll": float(np.concatenate(full_nll)[counted].sum(dtype=np.float64)),
        "top1": int(same[counted].sum()),
    }


def _shifted(logits: FloatArray) -> FloatArray:
    out: FloatArray = logits - logits.max(axis=-1, keepdims=True)
    return out
