"""Marks: what a rollback needs of one layer (docs/lifecycle.md, "Drafts")."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .arithmetic import F16
from .encode import Means
from .layer import LayerState, Rows, Stream


@dataclass(frozen=True)
class Marked:
    """A layer as it was marked: its length, and the oldest fp16 tokens of its residual."""

    length: int
    due: int
    kept: Rows

    @classmethod
    def of(cls, state: LayerState, tokens: int) -> Marked:
        """Keeps what pages sealed within `tokens` more tokens would replace."""
        spec = state.spec
        pages = spec.sealed(state.length + tokens) - spec.sealed(state.length)
        at_risk = min(state.residual.used, pages * spec.page_tokens)
        kept = (state.residual.get(stream)[:, :at_risk] for stream in ("keys", "values"))
        return cls(state.length, state.due, Rows.copied(*kept))

    def _starts(self, state: LayerState, length: int) -> tuple[int, int, int]:
        """First tokens of the residual: at `length`, at present, and of what is kept."""
        spec = state.spec
        return tuple(  # type: ignore[return-value]
            spec.sinks + spec.sealed(n) * spec.page_tokens
            for n in (length, state.length, self.length)
        )

    def reaches(self, state: LayerState, keep: int) -> bool:
        """Whether every token that must be fp16 with `keep` more tokens is kept or still is."""
        length = self.length + keep
        start, present, kept = self._starts(state, length)
        missing = min(length, present)
        return start >= missing or (kept <= start and missing <= kept + self.kept.used)

    def rolled_back(self, state: LayerState, keep: int) -> LayerState:
        """The layer with `keep` tokens more than it was marked with."""
        length = self.length + keep
        start, present, kept = self._starts(state, length)
        sealed = state.spec.sealed(length)
        back = slice(max(0, start - kept), max(0, min(length, present) - kept))
        still = max(0, length - present)

        def tokens(stream: Stream) -> F16:
            both = (self.kept.get(stream)[:, back], state.residual.get(stream)[:, :still])
            return np.concatenate(both, axis=1)

        residual = state.residual.cut(max(0, length - start))
        if start < present:
            residual = Rows.copied(tokens("keys"), tokens("values"))
        return replace(
            state,
            sinks=state.sinks.cut(length),
            residual=residual,
            pages=state.pages[: sealed - state.retired],
            length=length,
            means=state.means if sealed else Means(),
            due=self.due,
        )
