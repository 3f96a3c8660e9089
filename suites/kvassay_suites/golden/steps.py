"""Every intermediate of the numeric contract for a golden case, by name, in the order computed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.spec import LayerSpec

from .cases import inputs, spec_of
from .contract import F32, LN2, LOG2E, ZERO, const, dot16, ex2, f16s, ordered_sum, sum16
from .streams import keys_of, values_of

Arrays = dict[str, NDArray[Any]]
#: The cases that the pack holds: every family of codes, scale kind and kind of mean, one and two
#: rounds, whole and half rates, signs, sinks, a window, a span, more than one chunk.
PACKED: Final = (
    *("d64", "d80", "d96", "d112", "d160", "d192"),
    *("fp16", "kivi", "centred", "product", "span", "chunks"),
)
CHUNK: Final = 16


def steps(name: str) -> Arrays:
    """All arrays of a case (docs/golden-pack.md names them); layer 0, the last query alone."""
    spec = spec_of(name).layer(0)
    keys, values, queries = inputs(name, 0)
    case = _Case(spec, keys, values, queries[-1])
    case.seal()
    case.query()
    case.recent()
    case.pages()
    case.finish()
    return case.arrays


class _Parts:
    """One array a page, under a name; stacked when all are there."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}

    def keep(self, name: str, array: Any) -> None:
        """Keep one step of a page."""
        self.lists.setdefault(name, []).append(np.array(array))


def _nothing(name: str, array: Any) -> None:
    """Steps of a page that nothing attends any more are not kept."""


class _Case:
    """One layer and one query; each method is a section of the contract."""

    def __init__(self, spec: LayerSpec, keys: F32, values: F32, q: F32) -> None:
        self.spec = spec
        self.arrays: Arrays = {"keys": keys, "values": values, "query": q}
        self.keys = keys.astype(np.float16).astype(np.float32)
        self.values = values.astype(np.float16).astype(np.float32)
        self.q = q
        self.length = len(keys)
        self.sealed = spec.sealed(self.length)
        self.heads = np.arange(spec.query_heads) * spec.kv_heads // spec.query_heads
        token = np.arange(self.length)
        #: Which tokens the query may attend (section 9), and the first page with one of them.
        self.seen = (token < spec.sinks) | (token >= self.length - (spec.span or self.length))
        attended = [bool(self.seen[self._rows(page)].any()) for page in range(self.sealed)]
        self.first = attended.index(True)
        self.key = keys_of(spec, self.heads, self.keep)
        self.value = values_of(spec, self.heads, self.keep)
        self.key_mean: list[F32] = []
        self.value_mean = np.zeros((spec.kv_heads, spec.head_dim), np.float32)

    def keep(self, name: str, array: Any) -> None:
        """Keep one step."""
        self.arrays[name] = np.asarray(array)

    def _rows(self, page: int) -> slice:
        first = self.spec.sinks + page * self.spec.page_tokens
        return slice(first, first + self.spec.page_tokens)

    def _keep_all(self, parts: _Parts) -> None:
        for name, arrays in parts.lists.items():
            self.keep(name, np.stack(arrays))

    def seal(self) -> None:
        """Sections 3, 5 and 6, page by page."""
        spec, parts = self.spec, _Parts()
        for page in range(self.sealed):
            keep = parts.keep if page >= self.first else _nothing
            keys, values = (x[self._rows(page)] for x in (self.keys, self.values))
            if spec.key_centre == "frozen" and page:
                self.key_mean.append(self.key_mean[0])
            else:
                self.key_mean.append(self._mean(keys, spec.key_centre))
            if page == 0:
                self.value_mean = self._mean(values, spec.value_centre)
            for name, stream, tokens, mean in (
                ("key", self.key, keys, self.key_mean[-1]),
                ("value", self.value, values, self.value_mean),
            ):
                r = (tokens - mean).transpose(1, 0, 2)
                keep(f"{name}.mean", mean.astype(np.float16))
                keep(f"{name}.residual", r)
                stream.seal(r, keep)
        self._keep_all(parts)

    def _mean(self, tokens: F32, centre: str) -> F32:
        if centre == "none":
            return np.zeros(tokens.shape[1:], np.float32)
        return f16s(ordered_sum(tokens) / np.float32(len(tokens))).astype(np.float32)

    def query(self) -> None:
        """Section 7."""
        scale = float(np.float32(self.spec.softmax_scale))
        ql = self.q * const(LOG2E * scale)
        self.ql = np.where(np.abs(ql) < np.float32(2.0**-64), ZERO, ql).astype(np.float32)
        self.keep("query.scaled", self.ql)
        self.key.query(self.ql, self.keep)

    def recent(self) -> None:
        """Section 10, the fp16 part."""
        end = self.spec.sinks + self.sealed * self.spec.page_tokens
        places = np.array([*range(min(self.spec.sinks, self.length)), *range(end, self.length)])
        places = places.astype(np.int64)
        self.places = places[self.seen[places]]
        keys, values = (x[self.places][:, self.heads] for x in (self.keys, self.values))
        t = dot16(self.ql[None], keys).T
        self.fp16_logits = t
        shape = (self.spec.query_heads, self.spec.head_dim)
        self.top = t.max(axis=1) if len(self.places) else None
        if self.top is None:
            self.recent_sum = np.zeros(shape[0], np.float32)
            self.recent_out = np.zeros(shape, np.float32)
            return
        p = ex2(t - self.top[:, None])
        self.recent_sum = sum16(p)
        self.recent_out = ordered_sum(p.T[:, :, None] * values)
        self.keep("recent.tokens", self.places.astype(np.int32))
        self.keep("recent.logits", t)
        self.keep("recent.maximum", self.top)
        self.keep("recent.weights", p)
        self.keep("recent.sum", self.recent_sum)
        self.keep("recent.output", self.recent_out)

    def pages(self) -> None:
        """Sections 8 and 10 for the pages with an attended token, chunk by chunk."""
        parts = _Parts()
        self.chunks: list[_Running] = []
        for page in range(self.first, self.sealed):
            if page % CHUNK == 0 or page == self.first:
                self.chunks.append(_Running(self.top, self.spec))
            self._page(page, self.chunks[-1], parts)
        self._keep_all(parts)

    def _page(self, page: int, chunk: _Running, parts: _Parts) -> None:
        seen = self.seen[self._rows(page)]
        t = self.key.logits(page, parts.keep)
        if self.spec.key_centre != "none":
            t = t + dot16(self.ql, self.key_mean[page][self.heads])[:, None]
        mp = t[:, seen].max(axis=1)
        chunk.start(mp)
        p = np.where(seen, ex2(np.minimum(t - mp[:, None], ZERO)), ZERO)
        ps = sum16(p)
        al, be, used = chunk.join(mp)
        chunk.add(used, al, be, ps, self.value.output(page, p, be, parts.keep))
        for name, array in (
            ("logits", t),
            ("maximum", mp),
            ("weights", p),
            ("sum", ps),
            ("running_maximum", chunk.top),
            ("running_sum", chunk.sum),
            ("running_output", chunk.acc),
        ):
            parts.keep(f"pages.{name}", array)

    def finish(self) -> None:
        """The fold of the chunks, the way back, the division; and the scores."""
        total = _Running(self.top, self.spec)
        for chunk in self.chunks:
            total.start(chunk.top)
            al, be, _ = total.join(chunk.top, skips=False)
            total.sum = total.sum * al + chunk.sum * be
            total.acc = total.acc * al[:, None] + chunk.acc * be[:, None]
        if self.top is not None:
            a0 = ex2(self.top - total.top)
            self.recent_sum = self.recent_sum * a0
            self.recent_out = self.recent_out * a0[:, None]
        self.keep("total.sum", total.sum)
        self.keep("total.output", total.acc)
        o = self.value.back(total.acc)
        if self.spec.value_centre != "none":
            o = o + total.sum[:, None] * self.value_mean[self.heads]
        out = (o + self.recent_out) / (total.sum + self.recent_sum)[:, None] + ZERO
        scores = np.full((self.spec.query_heads, self.length), -np.inf, np.float32)
        scores[:, self.places] = self.fp16_logits
        for page, logits in enumerate(self.arrays["pages.logits"], self.first):
            scores[:, self._rows(page)] = logits
        scores[:, ~self.seen] = -np.inf
        self.keep("scores", scores * const(LN2))
        self.keep("output", out)


class _Running:
    """State of a chunk, or of the fold, for all query heads: maximum, sum, accumulator."""

    def __init__(self, top: F32 | None, spec: LayerSpec) -> None:
        self.absent = top is None
        heads = spec.query_heads
        self.top = np.zeros(heads, np.float32) if top is None else top.copy()
        self.sum = np.zeros(heads, np.float32)
        self.acc = np.zeros((heads, spec.head_dim), np.float32)

    def start(self, top: F32) -> None:
        """Without a maximum the first one found is it."""
        if self.absent:
            self.top, self.absent = top.copy(), False

    def join(self, top: F32, skips: bool = True) -> tuple[F32, F32, NDArray[np.bool_]]:
        """al and be for a page of this maximum, and for which heads it is not skipped."""
        used = ~(top - self.top < -40) if skips else np.ones(top.shape, np.bool_)
        joint = np.where(used, np.maximum(self.top, top), self.top)
        al, be = ex2(self.top - joint), ex2(np.minimum(top - joint, ZERO))
        self.top = joint
        return al, be, used

    def add(self, used: NDArray[np.bool_], al: F32, be: F32, ps: F32, x: F32) -> None:
        """Add a page where it is not skipped."""
        self.sum = np.where(used, self.sum * al + ps * be, self.sum)
        self.acc = np.where(used[:, None], self.acc * al[:, None] + x, self.acc)
