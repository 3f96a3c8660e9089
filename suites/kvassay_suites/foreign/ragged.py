"""Appends of uneven sizes with attention between them, and head dims that fill no group."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import numpy as np

from kvassay.backend.own_formats import OwnFormat, OwnFormatBackend
from kvassay.errors import UnsupportedError
from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.spec import Spec

from ..quality import metrics
from ..quality.measured import Origin
from .shapes import Refusal, refusal, shape_of, shape_record
from .truth import GROUP, expected, inputs, step

#: Query heads, KV heads, head dim, tokens: tails of tokens, and of channels, that fill no group.
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


def ragged(
    origin: Origin, backend: OwnFormatBackend, name: str, format_: OwnFormat
) -> list[Record]:
    """The largest error over all lengths of an append, and the first length over the bound."""
    records = []
    for number, (query_heads, kv_heads, d, tokens) in enumerate(_RAGGED):
        shape = shape_of(query_heads, kv_heads, d)
        refused = refusal(backend, name, shape)
        if not refused:
            try:
                errors = _errors(backend, name, format_, shape, tokens, 100 + number)
                records.append(_record(origin, format_, shape, tokens, errors))
            except UnsupportedError as error:  # no cache may choose the lengths of its appends
                refused = Refusal(f"an append: {error}", silent=True)
        records.append(shape_record(origin, shape, refused))
    return records


def _errors(
    backend: OwnFormatBackend, name: str, format_: OwnFormat, shape: Spec, tokens: int, seed: int
) -> dict[int, float]:
    """The error of attention by tokens held."""
    k, v, q = inputs("stepped", seed, shape, tokens)
    errors: dict[int, float] = {}
    held = 0
    with closing(backend.prepare_own(name, shape)) as cache:
        for size in _APPENDS:
            part = slice(held, min(held + size, tokens))
            cache.append(0, k[part], v[part])
            held = part.stop
            errors[held] = max(
                _error(cache.attend(0, one), expected(format_, shape, k[:held], v[:held], one))
                for one in (q, _aimed(k[held - 1], q))
            )
            if held == tokens:
                break
    return errors


def _record(
    origin: Origin, format_: OwnFormat, shape: Spec, tokens: int, errors: dict[int, float]
) -> Record:
    wrong = next((n for n, error in errors.items() if not error <= format_.bound), None)
    d, worst = shape.head_dim, max(errors.values())
    heads = f"{shape.query_heads} / {shape.kv_heads} heads"
    subject = f"uneven appends, {heads}, d {d}, {tokens} tokens"
    first = {}
    if wrong:
        subject += f", first wrong at token {wrong}"
        first = {"first_wrong": {"token": wrong, "head_dim": d}}
    return origin.record(
        "relative_error", worst / format_.bound, "of the declared bound",
        len(errors) * shape.query_heads * d, subject,
        error=worst, bound=format_.bound, keys=format_.keys, values=format_.values, **first,
    )  # fmt: skip


def _aimed(key: FloatArray, q: FloatArray) -> FloatArray:
    """A query that meets one token nearly alone, whose fault is then not averaged away."""
    return 2 * np.repeat(key, len(q) // len(key), axis=0) / step(key.shape[-1]) ** 2


def _error(found: FloatArray, right: np.ndarray[Any, Any]) -> float:
    """The larger of the error over all channels and over those that fill no group."""
    tail = right.shape[-1] % GROUP
    whole = metrics.relative_rms(found, right)
    return max(whole, metrics.relative_rms(found[:, -tail:], right[:, -tail:])) if tail else whole
