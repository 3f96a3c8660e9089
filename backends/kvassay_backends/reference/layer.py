"""The state of one layer as a value: every operation gives a new state and leaves the old one as it
was.

docs/lifecycle.md. A cache replaces its states only when an operation has succeeded, so a failure in
the middle changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import SpanError, StateError, TruncateError
from kvassay.page.dump import LayerDump, first_live_page
from kvassay.spec import Identity, LayerSpec

from .arithmetic import F16, F32, f16
from .encode import Means, frozen_means, layout_of

if TYPE_CHECKING:
    from .kernels import Kernels, Page

Stream = Literal["keys", "values"]


@dataclass(frozen=True)
class Rows:
    """fp16 keys and values of some consecutive tokens, (heads, capacity, d), `used` of them
    filled."""

    keys: F16
    values: F16
    used: int = 0

    @classmethod
    def empty(cls, spec: LayerSpec) -> Rows:
        """No tokens and no memory."""
        none = np.empty((spec.kv_heads, 0, spec.head_dim), np.float16)
        return cls(none, none)

    @classmethod
    def copied(cls, keys: F16, values: F16) -> Rows:
        """These tokens in memory of their own."""
        return cls(keys.copy(), values.copy(), keys.shape[1])

    def get(self, stream: Stream) -> F16:
        """The tokens of a stream (heads, used, d)."""
        return (self.keys if stream == "keys" else self.values)[:, : self.used]

    def appended(self, keys: F16, values: F16, most: int) -> Rows:
        """With more tokens at the end. Spare memory is doubled at a time, up to `most` tokens."""
        used = self.used + keys.shape[1]
        rows = self if used <= self.keys.shape[1] else self._grown(used, most)
        # Only spare memory is written: the state that shares it does not see the difference.
        rows.keys[:, self.used : used] = keys
        rows.values[:, self.used : used] = values
        return replace(rows, used=used)

    def _grown(self, used: int, most: int) -> Rows:
        capacity = max(used, min(2 * self.keys.shape[1], most))
        shape = (self.keys.shape[0], capacity, self.keys.shape[2])
        rows = Rows(np.empty(shape, np.float16), np.empty(shape, np.float16), self.used)
        rows.keys[:, : self.used] = self.get("keys")
        rows.values[:, : self.used] = self.get("values")
        return rows

    def without_first(self, n: int) -> Rows:
        """The tokens from the n-th on, in new memory of the same size."""
        rows = Rows(np.empty_like(self.keys), np.empty_like(self.values), self.used - n)
        rows.keys[:, : rows.used] = self.get("keys")[:, n:]
        rows.values[:, : rows.used] = self.get("values")[:, n:]
        return rows

    def cut(self, n: int) -> Rows:
        """The first n tokens; the memory is kept."""
        return replace(self, used=min(n, self.used))

    def bytes_of(self, tokens: int) -> int:
        """Bytes that this many tokens take."""
        heads, _, d = self.keys.shape
        return 4 * int(heads) * tokens * int(d)


@dataclass(frozen=True)
class LayerState:
    """One layer: sinks, pages `retired` .. `sealed - 1`, residual, frozen means."""

    spec: LayerSpec
    layer: int
    identity: Identity | None
    kernels: Kernels = field(repr=False)
    sinks: Rows
    residual: Rows
    pages: tuple[Page, ...] = ()
    retired: int = 0
    length: int = 0
    means: Means = field(default_factory=Means)
    #: Pages before this one are retired once no mark stands in the way.
    due: int = 0

    @classmethod
    def empty(
        cls,
        spec: LayerSpec,
        layer: int,
        identity: Identity | None,
        kernels: Kernels,
    ) -> LayerState:
        """A layer without tokens."""
        return cls(spec, layer, identity, kernels, Rows.empty(spec), Rows.empty(spec))

    @property
    def sealed(self) -> int:
        """Pages ever sealed, retired ones included."""
        return self.retired + len(self.pages)

    def page(self, number: int) -> Page:
        """A page by its number since the start of the sequence."""
        return self.pages[number - self.retired]

    def appended(self, k: F32, v: F32, retire: bool = True) -> LayerState:
        """After appending k and v (tokens, heads, d), each time up to where a page falls due.

        Without `retire`, pages that no later query can reach are only noted as due.
        """
        first = first_live_page(self.spec, self.length)
        state = self.without_pages(first) if retire else replace(self, due=max(self.due, first))
        start = 0
        while start < len(k):
            end = start + state._room()
            keys, values = (f16(x[start:end]).transpose(1, 0, 2) for x in (k, v))
            state = state._grow(keys, values)._seal_due()
            start = end
        return state

    def _room(self) -> int:
        """Tokens until the next page falls due."""
        spec = self.spec
        due = spec.sinks + spec.window + (self.sealed + 1) * spec.page_tokens
        return due - self.length

    def without_pages(self, first: int) -> LayerState:
        """Without the pages before number `first`."""
        if first <= self.retired:
            return self
        return replace(self, pages=self.pages[first - self.retired :], retired=first)

    def adopted(self, donor: LayerState, pages: int, k: F32, v: F32) -> LayerState:
        """An empty layer after a donor's sinks and first pages, and then k and v."""
        sinks = Rows.copied(donor.sinks.get("keys"), donor.sinks.get("values"))
        length = self.spec.sinks + pages * self.spec.page_tokens
        state = replace(
            *(self,), sinks=sinks, pages=donor.pages[:pages], length=length, means=donor.means
        )
        return replace(state.appended(k, v, retire=False), due=0)

    def _grow(self, keys: F16, values: F16) -> LayerState:
        spec, n = self.spec, keys.shape[1]
        to_sinks = min(n, max(0, spec.sinks - self.length))
        sinks, residual = self.sinks, self.residual
        if to_sinks:
            sinks = sinks.appended(keys[:, :to_sinks], values[:, :to_sinks], spec.sinks)
        if to_sinks < n:
            most = spec.window + spec.page_tokens
            residual = residual.appended(keys[:, to_sinks:], values[:, to_sinks:], most)
        return replace(self, sinks=sinks, residual=residual, length=self.length + n)

    def _seal_due(self) -> LayerState:
        spec = self.spec
        if self.sealed == spec.sealed(self.length):
            return self
        keys = self.residual.get("keys")[:, : spec.page_tokens]
        values = self.residual.get("values")[:, : spec.page_tokens]
        means = frozen_means(spec, keys, values) if self.sealed == 0 else self.means
        start = spec.sinks + self.sealed * spec.page_tokens
        page = self.kernels.seal(spec, means, keys, values, self.layer, start, self.identity)
        residual = self.residual.without_first(spec.page_tokens)
        return replace(self, residual=residual, pages=(*self.pages, page), means=means)

    def refusal(self, n: int) -> StateError | None:
        """Why this layer cannot be cut to n tokens, None if it can."""
        spec, s = self.spec, self.spec.sealed(n)
        if n >= self.length or n <= spec.sinks:
            return None
        first = spec.sinks + s * spec.page_tokens
        if s != self.sealed and n != first:
            return TruncateError(
                f"truncate: tokens {first} .. {n - 1} of layer {self.layer} must be fp16 again at "
                f"{n} tokens, but are sealed in a page"
            )
        live = first_live_page(spec, n)
        if live < min(s, self.retired):
            return SpanError(
                f"truncate: page {live} of layer {self.layer} is inside the span again at "
                f"{n} tokens, but was retired"
            )
        return None

    def cut(self, n: int) -> LayerState:
        """The first n tokens; `refusal(n)` must be None."""
        if n >= self.length:
            return self
        spec, s = self.spec, self.spec.sealed(n)
        retired = min(self.retired, s)
        # Where pages go, no token behind them stays: that is what `refusal` makes sure of.
        return replace(
            self,
            sinks=self.sinks.cut(n),
            residual=self.residual.cut(max(0, n - spec.sinks - s * spec.page_tokens)),
            pages=self.pages[: s - retired],
            retired=retired,
            length=n,
            means=self.means if s else Means(),
            due=0,
        )

    def forked(self) -> LayerState:
        """Equal state: pages shared, fp16 tokens copied."""
        sinks, residual = (
            Rows.copied(rows.get("keys"), rows.get("values"))
            for rows in (self.sinks, self.residual)
        )
        return replace(self, sinks=sinks, residual=residual, due=0)

    def live_pages(self) -> tuple[Page, ...]:
        """Pages that a query of the present length may reach."""
        return self.pages[max(0, first_live_page(self.spec, self.length) - self.retired) :]

    def unreachable(self, visible: int) -> bool:
        """Whether a query of this visible length attends a token whose page was retired."""
        spec = self.spec
        if not spec.span:
            return False
        first = max(spec.sinks, visible - spec.span)
        return first < min(visible, spec.sinks + self.retired * spec.page_tokens)

    def fp16_positions(self) -> NDArray[np.int64]:
        """Positions in the sequence of the fp16 tokens: sinks, then residual."""
        return np.concatenate(
            [
                np.arange(self.sinks.used),
                np.arange(self.length - self.residual.used, self.length),
            ]
        )

    def fp16_tokens(self, stream: Stream, seen: NDArray[np.bool_]) -> F16:
        """The fp16 tokens (heads, n, d) that `seen` picks from `fp16_positions`."""
        sinks, residual = self.sinks.get(stream), self.residual.get(stream)
        used = self.sinks.used
        return np.concatenate([sinks[:, seen[:used]], residual[:, seen[used:]]], axis=1)

    def dumped(self) -> LayerDump:
        """The layer as a dump holds it."""
        return LayerDump(
            length=self.length,
            first_page=first_live_page(self.spec, self.length),
            key_mean=self.means.keys,
            value_mean=self.means.values,
            sink_keys=self.sinks.get("keys"),
            sink_values=self.sinks.get("values"),
            residual_keys=self.residual.get("keys"),
            residual_values=self.residual.get("values"),
            pages=tuple(map(bytes, self.live_pages())),
        )

    def restored(self, dump: LayerDump) -> LayerState:
        """An empty layer filled from a checked dump."""
        return replace(
            self,
            sinks=Rows.copied(dump.sink_keys, dump.sink_values),
            residual=Rows.copied(dump.residual_keys, dump.residual_values),
            pages=tuple(map(self.kernels.hold, dump.pages)),
            retired=dump.first_page,
            length=dump.length,
            means=Means(dump.key_mean, dump.value_mean),
        )

    def nbytes(self) -> dict[str, int]:
        """Bytes of arrays and pages that this layer holds, by part; tables belong to the
        cache."""
        page = layout_of(self.spec).parts
        held = {part: size * len(self.pages) for part, size in page.items()}
        for mean in (self.means.keys, self.means.values):
            held["means"] += 0 if mean is None else mean.nbytes
        for part, rows in (("sinks", self.sinks), ("residual", self.residual)):
            held[part] = rows.bytes_of(rows.used)
        rows_held = (self.sinks, self.residual)
        held["reserved"] = sum(r.bytes_of(r.keys.shape[1] - r.used) for r in rows_held)
        return held
