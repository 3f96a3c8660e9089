"""Measurements of a format that is not this project's.

Its own arithmetic is held to exact attention over what its codec, read in Python, decodes; codec
and arithmetic together to full precision, by the thresholds that this project's presets have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

import numpy as np

from kvassay.backend.own_formats import OwnCache, OwnFormat, OwnFormatBackend
from kvassay.backend.returned import ReturnedCache
from kvassay.models import CacheAttention, FullAttention, tiny, tiny_tokens
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Target

from ..common.specs import MATH, ONE_LAYER
from ..quality import metrics
from ..quality.fixture import SHAPES
from ..quality.fixture import one_layer as fixture
from ..quality.measured import REAL, TINY, Origin
from ..quality.predictions import compare_predictions, prediction_records
from ..quality.real_model import cache_spec, fixed_text, real_model
from ..quality.tiny_transformer import CLEAR
from ..quality.zeros import FLOOR
from . import SUITE, own
from .ragged import ragged
from .shapes import Refusal, refusal, shape_of, shape_record
from .truth import exact, expected, inputs

#: Query heads, KV heads, head dim, tokens; in the second, long sums in half precision show.
_CASES: Final = ((4, 4, 64, 33), (8, 2, 128, 2048), (6, 2, 96, 257), (4, 1, 256, 64))
_KINDS: Final = ("gaussian", "outliers", "biased")
_TOKENS: Final = 400
#: From so many bits on what is held may equal what went in.
_FLOATS: Final = 32.0
_TINY_TOKENS: Final = 272
#: Positions before it are left out of the figures of models: short caches err little.
FROM: Final = 64


def arithmetic(backend: str, variant: str, name: str) -> list[Record]:
    """Attention over its bound, chunked appends, and bytes held over those its codec needs."""
    origin, loaded, format_ = _of(backend, variant, name, MATH)
    records = []
    for number, (query_heads, kv_heads, d, tokens) in enumerate(_CASES):
        shape = shape_of(query_heads, kv_heads, d)
        refused = refusal(loaded, name, shape)
        records.append(shape_record(origin, shape, refused))
        for kind in () if refused else _KINDS:
            k, v, q = inputs(kind, number, shape, tokens)
            right = expected(format_, shape, k, v, q)
            with closing(loaded.prepare_own(name, shape)) as cache:
                cache.append(0, k, v)
                found = cache.attend(0, q)
                held = 8 * cache.stored_bytes / (k.size + v.size)
            with closing(loaded.prepare_own(name, shape)) as cache:
                for part in np.array_split(np.arange(tokens), 5):
                    cache.append(0, k[part], v[part])
                chunked = cache.attend(0, q)
            subject = f"{kind}, {query_heads} / {kv_heads} heads, d {d}, {tokens} tokens"
            detail = {"bound": format_.bound, "keys": format_.keys, "values": format_.values}
            for check, out, wanted in (
                ("relative_error", found, right),
                ("chunking", chunked, found),
            ):
                error = metrics.relative_rms(out, wanted)
                records.append(
                    origin.record(
                        check, error / format_.bound, "of the declared bound", out.size, subject,
                        error=error, **detail,
                    )
                )  # fmt: skip
            records.append(
                origin.record(
                    "stored_bits", held / format_.bits, "of its codec's", k.size, subject,
                    held=held, declared=format_.bits,
                )
            )  # fmt: skip
    return records + ragged(origin, loaded, name, format_)


def one_layer(backend: str, variant: str, name: str) -> list[Record]:
    """Output error against full precision on the fixture of the quality suite."""
    origin, loaded, _ = _of(backend, variant, name, ONE_LAYER)
    records = []
    for kind, (query_heads, kv_heads) in SHAPES.items():
        tensors = fixture(kind, _TOKENS)
        d = tensors.q.shape[-1]
        shape = shape_of(query_heads, kv_heads, d)
        if refused := refusal(loaded, name, shape):
            records.append(_unmeasured(origin, "output_error", kind, refused))
            continue
        right = exact(shape, tensors.k, tensors.v, tensors.q[-1])
        with closing(loaded.prepare_own(name, shape)) as cache:
            cache.append(0, tensors.k, tensors.v)
            found = cache.attend(0, tensors.q[-1])
        error = metrics.relative_rms(found, right)
        records.append(
            origin.record("output_error", error, "relative RMS", found.size, kind, tokens=_TOKENS)
        )
    return records


def tiny_transformers(backend: str, variant: str, name: str) -> list[Record]:
    """Logits of the tiny transformers with the cache in the loop."""
    origin, loaded, _ = _of(backend, variant, name, TINY)
    records = []
    for kind in SHAPES:
        model = tiny(kind)  # type: ignore[arg-type]
        tokens = tiny_tokens(_TINY_TOKENS)
        full = model.forward(tokens, FullAttention())[FROM:]
        fields: dict[str, Any] = model.config.shape
        shape = Spec(**fields)
        if refused := refusal(loaded, name, shape):
            checks = ("tiny_logit_drift", "tiny_top1")
            records += [_unmeasured(origin, check, kind, refused) for check in checks]
            continue
        with closing(loaded.prepare_own(name, shape)) as cache:
            found = model.forward(tokens, _attention(cache))[FROM:]
        same = metrics.same_top1(full, found)
        clear = np.diff(np.sort(full, axis=-1)[:, -2:], axis=-1)[:, 0] >= CLEAR
        drift = metrics.relative_rms(found, full)
        records += [
            origin.record("tiny_logit_drift", drift, "relative RMS", len(found), kind),
            origin.record(
                "tiny_top1", metrics.mean(same[clear]), "agreement", int(clear.sum()), kind
            ),
        ]
    return records


def model(backend: str, variant: str, name: str, model: str, tokens: int) -> list[Record]:
    """A teacher-forced pass of the real model with the cache in the loop."""
    origin, loaded, format_ = _of(backend, variant, name, REAL)
    captured = fixed_text(model, tokens)
    shape = cache_spec("fp16", captured)
    if refused := refusal(loaded, name, shape):
        return [_unmeasured(origin, "next_token_kl", model, refused)]
    with closing(loaded.prepare_own(name, shape)) as cache:
        hidden = real_model(model).hidden(captured.tokens, _attention(cache))
        values = 2 * tokens * shape.layers * shape.kv_heads * shape.head_dim
        told = format_.keys and {"held_bits": 8 * cache.stored_bytes / values}
    found = compare_predictions(real_model(model), captured, hidden)
    detail = {"tokens": tokens, "text": captured.digest, **(told or {})}
    records = prediction_records(origin, found, FROM, "fixed text", "next_token", **detail)
    same = {"next-token KL": records[0].value < FLOOR}
    return [*records, too_good(origin, same, format_.bits, "fixed text")]


def _attention(cache: OwnCache) -> CacheAttention:
    """Query by query; what hands back what it holds gets its prompt in one piece, as a cache of a
    model does."""
    return CacheAttention(cache, prompt=FROM if isinstance(cache, ReturnedCache) else 1)


def too_good(origin: Origin, same: Mapping[str, bool], claimed: float, subject: str) -> Record:
    """How many figures equal full precision, of a format that claims fewer bits than a float."""
    alarms = 0 if claimed >= _FLOATS else sum(same.values())
    return origin.record(
        "exact_zeros", alarms, "figures", len(same), subject, same=dict(same), claimed=claimed
    )


def _unmeasured(origin: Origin, check: str, subject: str, refused: Refusal) -> Record:
    """What a format has no shape for: no figure, and so no pass."""
    finding = f"not measured: {refused.reason}"
    return origin.record(check, 0.0, "", 0, subject, refused=refused.reason, finding=finding)


def _of(
    backend: str, variant: str, name: str, stage: str
) -> tuple[Origin, OwnFormatBackend, OwnFormat]:
    target = Target(backend, variant)
    loaded = own(target)
    return (
        Origin(target, name, stage, SUITE, command=f"kvassay {SUITE}"),
        loaded,
        loaded.formats[name],
    )
