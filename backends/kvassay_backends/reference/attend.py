"""Attention over a layer: fp16 part, chunks of 16 pages, fold, output (sections 9 and 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvassay.spec import LayerSpec

from .arithmetic import F32, LN2, const, d16, ex2, f32, ordered_sum, s16, single
from .encode import Means
from .layer import LayerState
from .pages import PageStack, page_logits, weigh_values
from .query import Query, prepare_query
from .transform import VALUES, Transform, read_gain

CHUNK: Final = 16
_SKIP: Final = np.float32(-40)
_ABSENT: Final = np.float32(-np.inf)
_ZERO: Final = np.float32(0)
#: Bounds the temporary memory of a call: queries x query heads x page tokens handled at once.
_BLOCK: Final = 1 << 14
_TOKENS_AT_ONCE: Final = 256
#: Page tokens decoded at a time: less than 1,024 tokens have, so that memory does not grow after.
_DECODED_AT_ONCE: Final = 256

Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


@dataclass
class Softmax:
    """A running softmax a row: maximum (absent is -inf), sum of weights, weighted values."""

    maximum: F32
    total: F32
    values: F32

    @classmethod
    def starting(cls, maximum: F32, d: int) -> Softmax:
        """Nothing yet, at the maximum of the fp16 part."""
        return cls(maximum, np.zeros_like(maximum), np.zeros((*maximum.shape, d), np.float32))

    def rescaled(self, maximum: F32, has: Mask) -> tuple[F32, F32, F32]:
        """(M', al, be) for something with this maximum, meaningful where `has`."""
        self.maximum = np.where(has & (self.maximum == _ABSENT), maximum, self.maximum)
        top = np.maximum(self.maximum, maximum)
        return top, ex2(single(self.maximum - top)), ex2(single(maximum - top))

    def update(self, take: Mask, top: F32, al: F32, total: F32, values: F32) -> None:
        """Rescale by `al` and add, in the rows of `take`."""
        self.total = np.where(take, single(single(self.total * al) + total), self.total)
        grown = single(single(self.values * al[..., np.newaxis]) + values)
        self.values = np.where(take[..., np.newaxis], grown, self.values)
        self.maximum = np.where(take, top, self.maximum)


def attended(spec: LayerSpec, tokens: Positions, visible: Positions) -> Mask:
    """Which tokens (...) queries of these visible lengths (n) attend: (n, ...)."""
    v = visible.reshape(-1, *(1,) * tokens.ndim)
    mask = tokens < v
    if spec.span:
        mask &= (tokens < spec.sinks) | (tokens >= v - spec.span)
    return np.broadcast_to(mask, (len(visible), *tokens.shape))


def attend(state: LayerState, transforms: dict[int, Transform], q: F32) -> tuple[F32, int]:
    """Outputs for q (n, query_heads, d), and how many heads of pages were read for them."""
    spec, n = state.spec, len(q)
    visible = np.arange(state.length - n + 1, state.length + 1)
    block = max(1, _BLOCK // (spec.query_heads * spec.page_tokens))
    out, scanned = np.empty_like(q), 0
    for start in range(0, n, block):
        part = slice(start, start + block)
        out[part], pages = _attend_block(state, transforms, q[part], visible[part])
        scanned += pages * spec.kv_heads
    return out, scanned


def scores(state: LayerState, transforms: dict[int, Transform], q: F32) -> tuple[F32, int]:
    """Logits (query_heads, tokens) of one query (query_heads, d), and how many heads of pages
    were read."""
    spec = state.spec
    query = prepare_query(spec, transforms, q[np.newaxis])
    visible = np.array([state.length])
    out = np.full((spec.query_heads, state.length), _ABSENT, np.float32)
    tokens = state.fp16_positions()
    seen = attended(spec, tokens, visible)[0]
    logits = _fp16_logits(state, query, seen).reshape(spec.query_heads, -1)
    out[:, tokens[seen]] = single(logits * const(LN2))
    scanned = 0
    for numbers, mask in _chunks(state, visible):
        stack = PageStack(spec, [bytes(state.page(i)) for i in numbers])
        t = single(page_logits(stack, query, state.means.keys) * const(LN2))
        t = np.where(_by_rows(spec, mask), t, _ABSENT)
        for number, logits in zip(numbers, t, strict=True):
            first = spec.sinks + number * spec.page_tokens
            out[:, first : first + spec.page_tokens] = logits.reshape(spec.query_heads, -1)
        scanned += len(numbers) * spec.kv_heads
    return out, scanned


def _attend_block(
    state: LayerState, transforms: dict[int, Transform], q: F32, visible: Positions
) -> tuple[F32, int]:
    spec = state.spec
    query = prepare_query(spec, transforms, q)
    m0, l0, recent = _fp16_part(state, query, visible)
    whole = Softmax.starting(m0, spec.head_dim)
    scanned, step = 0, max(1, _DECODED_AT_ONCE // spec.page_tokens)
    for numbers, mask in _chunks(state, visible):
        chunk = Softmax.starting(m0, spec.head_dim)
        rows = _by_rows(spec, mask)
        for part in range(0, len(numbers), step):
            some = slice(part, part + step)
            stack = PageStack(spec, [bytes(state.page(i)) for i in numbers[some]])
            _scan(stack, query, state.means, rows[some], chunk)
        has = np.asarray(rows.any(axis=(0, 3)))
        top, al, be = whole.rescaled(np.where(has, chunk.maximum, _ZERO), has)
        added = single(chunk.values * be[..., np.newaxis])
        whole.update(has, top, al, single(chunk.total * be), added)
        scanned += int(mask.any(axis=2).sum())
    present = m0 != _ABSENT
    a0 = np.where(present, ex2(single(m0 - whole.maximum)), np.float32(1))
    l0, recent = single(l0 * a0), single(recent * a0[..., np.newaxis])
    return _output(spec, transforms, state.means, whole, l0, recent), scanned


def _scan(stack: PageStack, query: Query, means: Means, mask: Mask, chunk: Softmax) -> None:
    """Add some pages of a chunk, masked (pages, heads, rows, tokens), to its softmax."""
    t = page_logits(stack, query, means.keys)
    has = np.asarray(mask.any(axis=3))
    mp = np.where(mask, t, _ABSENT).max(axis=3)
    mp = np.where(has, mp, _ZERO)
    below = np.where(mask, single(t - mp[..., np.newaxis]), _ZERO)
    p = np.where(mask, ex2(below), _ZERO)
    sums = s16(p)
    values = weigh_values(stack, p)
    for page in range(len(t)):
        top, al, be = chunk.rescaled(mp[page], has[page])
        take = has[page] & ~(single(mp[page] - chunk.maximum) < _SKIP)
        chunk.update(take, top, al, single(sums[page] * be), values.term(page, be))


def _chunks(state: LayerState, visible: Positions) -> Iterator[tuple[list[int], Mask]]:
    """Pages with an attended token, chunk by chunk: their numbers and masks (n, pages, tokens)."""
    spec = state.spec
    within = np.arange(spec.page_tokens)
    for first in range(state.retired // CHUNK * CHUNK, state.sealed, CHUNK):
        numbers = np.arange(max(first, state.retired), min(first + CHUNK, state.sealed))
        tokens = spec.sinks + numbers[:, np.newaxis] * spec.page_tokens + within
        mask = attended(spec, tokens, visible)
        reached = mask.any(axis=(0, 2))
        if reached.any():
            yield [int(i) for i in numbers[reached]], mask[:, reached]


def _by_rows(spec: LayerSpec, mask: Mask) -> Mask:
    """Masks (n, pages, tokens) as (pages, heads, rows, tokens): equal for the queries of one
    group."""
    rows = np.repeat(mask.swapaxes(0, 1), spec.group, axis=1)[:, np.newaxis]
    return np.broadcast_to(rows, (rows.shape[0], spec.kv_heads, *rows.shape[2:]))


def _fp16_logits(state: LayerState, query: Query, seen: Mask) -> F32:
    """t (heads, rows, tokens) of the fp16 tokens that `seen` picks."""
    keys = state.fp16_tokens("keys", seen)
    parts = [
        d16(query.log2[:, :, np.newaxis], f32(keys[:, np.newaxis, j : j + _TOKENS_AT_ONCE]))
        for j in range(0, keys.shape[1], _TOKENS_AT_ONCE)
    ]
    empty = np.zeros((*query.log2.shape[:2], 0), np.float32)
    return np.concatenate([empty, *parts], axis=-1)


def _fp16_part(state: LayerState, query: Query, visible: Positions) -> tuple[F32, F32, F32]:
    """M0 (-inf where absent) and l0, both (heads, rows), and R (heads, rows, d)."""
    spec = state.spec
    mask = attended(spec, state.fp16_positions(), visible)
    seen = np.asarray(mask.any(axis=0))
    mask = mask[:, seen]
    t = _fp16_logits(state, query, seen)
    # s16 numbers the attended tokens without holes: a stable sort moves the holes behind them.
    order = np.argsort(~mask, axis=1, kind="stable")
    order = np.repeat(order, spec.group, axis=0)[np.newaxis]
    mask = np.repeat(mask, spec.group, axis=0)[np.newaxis]
    m0 = np.where(mask, t, _ABSENT).max(axis=2, initial=_ABSENT)
    base = np.where(m0 == _ABSENT, _ZERO, m0)
    below = np.where(mask, single(t - base[..., np.newaxis]), _ZERO)
    p = np.where(mask, ex2(below), _ZERO)
    compact = np.take_along_axis(p, np.broadcast_to(order, p.shape), axis=2)
    values = f32(state.fp16_tokens("values", seen))
    return m0, s16(compact), ordered_sum(p, values)


def _output(
    spec: LayerSpec,
    transforms: dict[int, Transform],
    means: Means,
    whole: Softmax,
    l0: F32,
    recent: F32,
) -> F32:
    """Outputs (n, query_heads, d)."""
    o = whole.values
    if spec.values.rotated:
        transform = transforms[VALUES]
        o = single(transform.inverse(o) * read_gain(transform.exponent))
    if means.values is not None:
        mean = f32(means.values)[:, np.newaxis]
        o = single(o + single(whole.total[..., np.newaxis] * mean))
    total = single(whole.total + l0)[..., np.newaxis]
    out = single(single(single(o + recent) / total) + _ZERO)
    heads, rows, d = out.shape
    grouped = out.reshape(heads, rows // spec.group, spec.group, d).swapaxes(0, 1)
    return np.ascontiguousarray(grouped).reshape(-1, spec.query_heads, d)
