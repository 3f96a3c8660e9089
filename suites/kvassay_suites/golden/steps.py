"""Every intermediate of the numeric contract for a golden case, by name, in the order computed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.spec import LayerSpec

from .cases import inputs, spec_of
from .contract import (
    F32,
    LN2,
    LOG2E,
    QUERY_BOUND,
    WEIGHT_BOUND,
    ZERO,
    Codebook,
    Scales,
    Transform,
    const,
    dot16,
    ex2,
    f16s,
    ordered_sum,
    rne,
    store_scales,
    sum16,
)

Arrays = dict[str, NDArray[Any]]
#: The cases that the pack holds: every scale kind, one and two rounds, whole and half rates, page
#: and frozen means, sinks and a window, more than one chunk.
PACKED: Final = ("d64", "d80", "d96", "d192", "product", "chunks")
CHUNK: Final = 16


def steps(name: str) -> Arrays:
    """All arrays of a case (docs/golden-pack.md names them); layer 0, the last query alone."""
    spec = spec_of(name).layer(0)
    keys, values, queries = inputs(name, 0)
    case = _Case(spec, keys, values, queries[-1])
    case.tables()
    case.seal()
    case.query()
    case.recent()
    case.pages()
    case.finish()
    return case.arrays


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
        self.turn = {
            stream: Transform.of(spec.head_dim, spec.seed, number, spec.rounds)
            for number, stream in enumerate(("key", "value"))
        }
        self.books = {
            "key": Codebook.of(spec.keys, spec.head_dim),
            "value": Codebook.of(spec.values, spec.head_dim),
        }
        self.levels: dict[str, list[F32]] = {"key": [], "value": []}
        self.scales: dict[str, list[Scales]] = {"key": [], "value": []}
        self.key_mean: list[F32] = []
        self.value_mean = np.zeros((spec.kv_heads, spec.head_dim), np.float32)

    def keep(self, name: str, array: Any) -> None:
        """Keep one step."""
        self.arrays[name] = np.asarray(array)

    def tables(self) -> None:
        """Section 4 and the tables of section 5."""
        for stream, turn in self.turn.items():
            self.keep(f"{stream}.signs1", turn.signs1.astype(np.int8))
            self.keep(f"{stream}.order", turn.order.astype(np.int32))
            self.keep(f"{stream}.signs2", turn.signs2.astype(np.int8))
            self.keep(f"{stream}.gain", np.array([turn.store, turn.read]))
            for number, (_, _, limits, half) in enumerate(self.books[stream].spans):
                self.keep(f"{stream}.thresholds{number}", np.array(limits, np.float32))
                self.keep(f"{stream}.centroids{number}", np.array(half, np.int8))

    def seal(self) -> None:
        """Sections 3 and 5, page by page."""
        spec = self.spec
        found: dict[str, list[Any]] = {}
        for page in range(self.sealed):
            first = spec.sinks + page * spec.page_tokens
            rows = slice(first, first + spec.page_tokens)
            for stream, tokens, centre in (
                ("key", self.keys[rows], spec.key_centre),
                ("value", self.values[rows], spec.value_centre),
            ):
                mean = f16s(ordered_sum(tokens) / np.float32(spec.page_tokens))
                if centre == "none" or (centre == "frozen" and page):
                    mean = np.zeros_like(mean)
                if stream == "key":
                    self.key_mean.append(mean.astype(np.float32))
                elif page == 0:
                    self.value_mean = mean.astype(np.float32)
                used = self.key_mean[-1] if stream == "key" else self.value_mean
                found.setdefault(f"{stream}.mean", []).append(used.astype(np.float16))
                self._encode(stream, (tokens - used).transpose(1, 0, 2), found)
        for name, parts in found.items():
            self.keep(name, np.stack(parts))

    def _encode(self, stream: str, r: F32, found: dict[str, list[Any]]) -> None:
        turn = self.turn[stream]
        y = turn.forward(r)
        n2 = dot16(y, y)
        sigma = np.sqrt(n2 * const(1 / self.spec.head_dim))
        codes, levels = self.books[stream].encode(y, sigma)
        e = dot16(y, levels)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = n2 / e if stream == "key" else e / dot16(levels, levels)
        scale = np.where(n2 == 0, ZERO, ratio * turn.store).astype(np.float32)
        stored = store_scales(self.spec.scale, scale)
        self.levels[stream].append(levels)
        self.scales[stream].append(stored)
        for what, array in (
            ("residual", r),
            ("transformed", y),
            ("sigma", sigma),
            ("codes", codes.astype(np.uint8)),
            ("scale", scale),
            ("scale_stored", stored.stored),
            ("scale_maximum", stored.maximum),
            ("scale_read", stored.su),
            ("scale_unit", stored.unit),
        ):
            if array is not None:
                found.setdefault(f"{stream}.{what}", []).append(array)

    def query(self) -> None:
        """Section 7."""
        scale = float(np.float32(self.spec.softmax_scale))
        ql = self.q * const(LOG2E * scale)
        ql = np.where(np.abs(ql) < np.float32(2.0**-64), ZERO, ql).astype(np.float32)
        z = self.turn["key"].forward(ql)
        a = np.abs(z).max(axis=-1)
        safe: F32 = np.where(a == 0, np.float32(1), a)
        qi = np.where(a[:, None] == 0, ZERO, rne(z * (np.float32(QUERY_BOUND) / safe)[:, None]))
        qs = (a * const(1 / QUERY_BOUND)) * self.turn["key"].read
        self.ql, self.qi, self.qs = ql, qi.astype(np.int64), qs
        self.keep("query.scaled", ql)
        self.keep("query.transformed", z)
        self.keep("query.codes", qi.astype(np.int8))
        self.keep("query.unit", qs)

    def recent(self) -> None:
        """Section 10, the fp16 part."""
        end = self.spec.sinks + self.sealed * self.spec.page_tokens
        places = np.array([*range(min(self.spec.sinks, self.length)), *range(end, self.length)])
        self.places = places.astype(np.int64)
        keys, values = (x[self.places][:, self.heads] for x in (self.keys, self.values))
        t = dot16(self.ql[None], keys).T
        self.fp16_logits = t
        shape = (self.spec.query_heads, self.spec.head_dim)
        self.top = t.max(axis=1) if len(places) else None
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
        """Sections 8 and 10 for the sealed pages, chunk by chunk."""
        found: dict[str, list[Any]] = {}
        self.chunks: list[_Running] = []
        for page in range(self.sealed):
            if page % CHUNK == 0:
                self.chunks.append(_Running(self.top, self.spec))
            self._page(page, self.chunks[-1], found)
        for name, parts in found.items():
            self.keep(name, np.stack(parts))

    def _page(self, page: int, chunk: _Running, found: dict[str, list[Any]]) -> None:
        of = self.heads
        levels = self.levels["key"][page][of].astype(np.int64)
        scales = self.scales["key"][page]
        sums = (self.qi[:, None, :] * levels).sum(axis=-1)
        t = (sums.astype(np.float32) * scales.su[of]) * (self.qs * scales.unit[of])[:, None]
        if self.spec.key_centre != "none":
            t = t + dot16(self.ql, self.key_mean[page][of])[:, None]
        mp = t.max(axis=1)
        chunk.start(mp)
        p = ex2(t - mp[:, None])
        ps = sum16(p)
        al, be, used = chunk.join(mp)
        scales = self.scales["value"][page]
        w = p * scales.su[of]
        most = w.max(axis=1)
        tiny = most < np.float32(2.0**-60)
        safe: F32 = np.where(tiny, np.float32(1), most)
        iw = np.where(tiny[:, None], ZERO, rne(w * (np.float32(WEIGHT_BOUND) / safe)[:, None]))
        weights = iw.astype(np.int64)
        total = (weights[:, :, None] * self.levels["value"][page][of].astype(np.int64)).sum(axis=1)
        f = ((most * const(1 / WEIGHT_BOUND)) * scales.unit[of]) * be
        chunk.add(used, al, be, ps, total.astype(np.float32) * f[:, None])
        for name, array in (
            ("sums", sums.astype(np.int32)),
            ("logits", t),
            ("maximum", mp),
            ("weights", p),
            ("sum", ps),
            ("value_weights", iw.astype(np.int16)),
            ("value_sums", total.astype(np.int32)),
            ("running_maximum", chunk.top),
            ("running_sum", chunk.sum),
            ("running_output", chunk.acc),
        ):
            found.setdefault(f"pages.{name}", []).append(np.array(array))

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
        o = self.turn["value"].back(total.acc) * self.turn["value"].read
        if self.spec.value_centre != "none":
            o = o + total.sum[:, None] * self.value_mean[self.heads]
        out = (o + self.recent_out) / (total.sum + self.recent_sum)[:, None] + ZERO
        scores = np.empty((self.spec.query_heads, self.length), np.float32)
        if len(self.places):
            scores[:, self.places] = self.fp16_logits
        for page, logits in enumerate(self.arrays.get("pages.logits", ())):
            first = self.spec.sinks + page * self.spec.page_tokens
            scores[:, first : first + self.spec.page_tokens] = logits
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
