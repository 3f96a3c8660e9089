"""Measurements of a format that is not this project's.

Its own arithmetic is held to exact attention over what its codec, read in Python, decodes; codec
and arithmetic together to full precision, by the thresholds that this project's presets have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

import numpy as np

from kvassay.backend.own_formats import OwnFormat, turned
from kvassay.backend.returned import ReturnedCache
from kvassay.errors import SpecError, UnsupportedError
from kvassay.models import CacheAttention, FullAttention, tiny, tiny_tokens
from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Target
from kvassay.vector_codec import codec

from ..common.specs import MATH, ONE_LAYER
from ..oracle import attend64
from ..quality import metrics
from ..quality.fixture import SHAPES
from ..quality.fixture import one_layer as fixture
from ..quality.measured import REAL, TINY, Origin
from ..quality.predictions import compare_predictions
from ..quality.real_model import cache_spec, fixed_text, real_model
from ..quality.tiny_transformer import CLEAR
from ..quality.zeros import FLOOR
from . import SUITE, own

#: Query heads, KV heads, head dim, tokens; in the second, long sums in half precision show.
_CASES: Final = ((4, 4, 64, 33), (8, 2, 128, 2048), (6, 2, 96, 257), (4, 1, 256, 64))
#: The same with tails of tokens, and of channels, that fill no group.
_RAGGED: Final = (
    (4, 4, 64, 47),
    (6, 2, 96, 75),
    (8, 2, 128, 269),
    (4, 2, 80, 47),
    (4, 1, 112, 75),
    (4, 2, 160, 75),
)
#: Appends of them; attention is taken after each.
_APPENDS: Final = (1, 33, 13, 28, 50, 7, 2, 31, 50, 50, 4)
_GROUP: Final = 32
_KINDS: Final = ("gaussian", "outliers", "biased")
_TOKENS: Final = 400
#: From so many bits on what is held may equal what went in.
_FLOATS: Final = 32.0
_TINY_TOKENS: Final = 272
#: Positions before it are left out of the figures of models: short caches err little.
_FROM: Final = 64


def arithmetic(backend: str, variant: str, name: str) -> list[Record]:
    """Attention over its bound, chunked appends, and bytes held over those its codec needs."""
    origin, loaded, format_ = _of(backend, variant, name, MATH)
    records = []
    for number, (query_heads, kv_heads, d, tokens) in enumerate(_CASES):
        shape = Spec(layers=1, query_heads=query_heads, kv_heads=kv_heads, head_dim=d)
        for kind in _KINDS:
            k, v, q = _inputs(kind, number, shape, tokens)
            expected = _expected(format_, shape, k, v, q)
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
            for check, out, right in (
                ("relative_error", found, expected),
                ("chunking", chunked, found),
            ):
                error = metrics.relative_rms(out, right)
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
    return records + _ragged(origin, loaded, name, format_)


def _ragged(origin: Origin, loaded: Any, name: str, format_: OwnFormat) -> list[Record]:
    """Attention between appends of uneven sizes; the largest error, and the first length over the
    bound."""
    records = []
    for number, (query_heads, kv_heads, d, tokens) in enumerate(_RAGGED):
        shape = Spec(layers=1, query_heads=query_heads, kv_heads=kv_heads, head_dim=d)
        k, v, q = _inputs("gaussian", 100 + number, shape, tokens)
        try:
            _expected(format_, shape, k[:1], v[:1], q)
            cache = loaded.prepare_own(name, shape)
        except (SpecError, UnsupportedError):
            if d % _GROUP:
                continue  # a head dim that the backend or its codec says it does not have
            raise
        errors, held = {}, 0
        with closing(cache):
            for size in _APPENDS:
                part = slice(held, min(held + size, tokens))
                cache.append(0, k[part], v[part])
                held = part.stop
                errors[held] = max(
                    _error(cache.attend(0, one), _expected(format_, shape, k[:held], v[:held], one))
                    for one in (q, _aimed(k[held - 1], q))
                )
                if held == tokens:
                    break
        wrong = next((n for n, error in errors.items() if not error <= format_.bound), None)
        worst = max(errors.values())
        subject = f"uneven appends, {query_heads} / {kv_heads} heads, d {d}, {tokens} tokens"
        if wrong:
            subject += f", first wrong at token {wrong}"
        records.append(
            origin.record(
                "relative_error", worst / format_.bound, "of the declared bound", q.size, subject,
                error=worst, bound=format_.bound, keys=format_.keys, values=format_.values,
            )
        )  # fmt: skip
    return records


def _aimed(key: FloatArray, q: FloatArray) -> FloatArray:
    """A query that meets one token nearly alone, whose fault is then not averaged away."""
    return 2 * np.repeat(key, len(q) // len(key), axis=0)


def _error(found: FloatArray, right: np.ndarray[Any, Any]) -> float:
    """The larger of the error over all channels and over those that fill no group."""
    tail = right.shape[-1] % _GROUP
    whole = metrics.relative_rms(found, right)
    return max(whole, metrics.relative_rms(found[:, -tail:], right[:, -tail:])) if tail else whole


def one_layer(backend: str, variant: str, name: str) -> list[Record]:
    """Output error against full precision on the fixture of the quality suite."""
    origin, loaded, _ = _of(backend, variant, name, ONE_LAYER)
    records = []
    for kind, (query_heads, kv_heads) in SHAPES.items():
        tensors = fixture(kind, _TOKENS)
        d = tensors.q.shape[-1]
        shape = Spec(layers=1, query_heads=query_heads, kv_heads=kv_heads, head_dim=d)
        exact = _exact(shape, tensors.k, tensors.v, tensors.q[-1])
        with closing(loaded.prepare_own(name, shape)) as cache:
            cache.append(0, tensors.k, tensors.v)
            found = cache.attend(0, tensors.q[-1])
        error = metrics.relative_rms(found, exact)
        records.append(
            origin.record("output_error", error, "relative rms", found.size, kind, tokens=_TOKENS)
        )
    return records


def _tiny_models(origin: Origin, prepare: Any) -> list[Record]:
    """Logits of the tiny transformers with the cache in the loop."""
    records = []
    for kind in SHAPES:
        model = tiny(kind)  # type: ignore[arg-type]
        tokens = tiny_tokens(_TINY_TOKENS)
        full = model.forward(tokens, FullAttention())[_FROM:]
        fields: dict[str, Any] = model.config.shape
        with closing(prepare(Spec(**fields))) as cache:
            found = model.forward(tokens, _attention(cache))[_FROM:]
        same = metrics.same_top1(full, found)
        clear = np.diff(np.sort(full, axis=-1)[:, -2:], axis=-1)[:, 0] >= CLEAR
        drift = metrics.relative_rms(found, full)
        records += [
            origin.record("tiny_logit_drift", drift, "relative rms", len(found), kind),
            origin.record(
                "tiny_top1", metrics.mean(same[clear]), "fraction", int(clear.sum()), kind
            ),
        ]
    return records


def tiny_transformers(backend: str, variant: str, name: str) -> list[Record]:
    """The tiny transformers."""
    origin, loaded, _ = _of(backend, variant, name, TINY)
    return _tiny_models(origin, lambda shape: loaded.prepare_own(name, shape))


def model(backend: str, variant: str, name: str, model: str, tokens: int) -> list[Record]:
    """A teacher-forced pass of the real model with the cache in the loop."""
    origin, loaded, format_ = _of(backend, variant, name, REAL)
    captured = fixed_text(model, tokens)
    shape = cache_spec("fp16", captured)
    with closing(loaded.prepare_own(name, shape)) as cache:
        hidden = real_model(model).hidden(captured.tokens, _attention(cache))
        values = 2 * tokens * shape.layers * shape.kv_heads * shape.head_dim
        told = format_.keys and {"held_bits": 8 * cache.stored_bytes / values}
    found = compare_predictions(real_model(model), captured, hidden)
    kl, top1 = found.kl[_FROM:], found.top1[_FROM:]
    detail = {"tokens": tokens, "text": captured.digest, **(told or {})}
    subject = "fixed text"
    mean = metrics.mean(kl)
    return [
        too_good(origin, {"next-token KL": mean < FLOOR}, format_.bits, subject),
        origin.record(
            "next_token_kl", mean, "nats", kl.size, subject,
            **metrics.spread(kl), **detail,
        ),
        origin.record("next_token_top1", metrics.mean(top1), "fraction", top1.size, subject),
    ]  # fmt: skip


def _attention(cache: Any) -> CacheAttention:
    """Query by query; what hands back what it holds gets its prompt in one piece, as a cache of a
    model does."""
    return CacheAttention(cache, prompt=_FROM if isinstance(cache, ReturnedCache) else 1)


def too_good(origin: Origin, same: Mapping[str, bool], claimed: float, subject: str) -> Record:
    """How many figures equal full precision, of a format that claims fewer bits than a float."""
    alarms = 0 if claimed >= _FLOATS else sum(same.values())
    return origin.record(
        "exact_zeros", alarms, "figures", len(same), subject, same=dict(same), claimed=claimed
    )


def _of(backend: str, variant: str, name: str, stage: str) -> tuple[Origin, Any, OwnFormat]:
    target = Target(backend, variant)
    loaded = own(target)
    return (
        Origin(target, name, stage, SUITE, command=f"kvassay {SUITE}"),
        loaded,
        loaded.formats[name],
    )


def _inputs(
    kind: str, seed: int, shape: Spec, tokens: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Keys, values and one query; logits of a spread that leaves attention neither flat nor
    one-hot."""
    rng = np.random.default_rng(seed)

    def draw(*size: int) -> FloatArray:
        return rng.standard_normal(size, np.float32)

    rows = (tokens, shape.kv_heads, shape.head_dim)
    k, v = draw(*rows), draw(*rows)
    q = 2 * draw(shape.query_heads, shape.head_dim)
    if kind == "outliers":
        k[:, :, :4] *= 10
        q[:, :4] /= 10
    if kind == "biased":
        k += 3 * draw(shape.kv_heads, shape.head_dim)
    return k, v, q


def _expected(
    format_: OwnFormat, shape: Spec, k: FloatArray, v: FloatArray, q: FloatArray
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Exact attention over what the codecs decode."""
    d, block = shape.head_dim, format_.hadamard
    keys = codec(format_.keys, head_dim=d, role="key").encode(turned(k, block)).decode()
    values = codec(format_.values, head_dim=d, role="value").encode(turned(v, block)).decode()
    return _exact(shape, turned(keys, block), turned(values, block), q)


def _exact(
    shape: Spec, k: FloatArray, v: FloatArray, q: FloatArray
) -> np.ndarray[Any, np.dtype[np.float64]]:
    scale = shape.effective_softmax_scale
    return attend64(k.astype(np.float64), v.astype(np.float64), q, scale, 0, 0, len(k))
