"""Operations of sequences that share: drafts and adopted prefixes."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kvassay.errors import (
    IdentityError,
    KvassayError,
    StateError,
    TruncateError,
)
from kvassay.protocol import Cache

from .oracle import ROWS, Sequence, keepable, rows
from .world import MOST, World, any_sequence


class SharingRules(World):
    """Marks, rollbacks, commits and adoptions, where the backend offers them."""

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence, tokens=st.integers(0, 40))
    def mark(self, which: int, tokens: int) -> None:
        """Begin a draft."""
        sequence = self.pick(which)
        if not self.ran_out(sequence, lambda: sequence.cache.mark(tokens), "mark"):
            sequence.marks.append(sequence.lengths)
            sequence.promised.append(tokens)

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence, count=st.integers(1, 20), keep=st.integers(0, 20))
    def draft(self, which: int, count: int, keep: int) -> None:
        """Mark, append to every layer, take some of it back: what speculative decoding does."""
        self.mark(which, count)
        self.append(which, 2, count, 77 + count)
        self.rollback(which, min(keep, count))

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence, keep=st.integers(0, 30))
    def rollback(self, which: int, keep: int) -> None:
        """Take a draft back, exactly, or be told why not."""
        sequence = self.pick(which)
        call = functools.partial(sequence.cache.rollback, keep)
        if not sequence.marks:
            self.refused(sequence, call, StateError, "rollback without a mark")
            return
        marked, promised = sequence.marks[-1], sequence.promised[-1]
        most = min(n - m for n, m in zip(sequence.lengths, marked, strict=True))
        layers = zip(sequence.spec.layer_specs, sequence.lengths, marked, strict=True)
        if keep > most:
            self.refused(sequence, call, StateError, f"rollback that keeps {keep} of {most}")
        elif not all(keepable(spec, n, m, promised, keep) for spec, n, m in layers):
            error = self.refused(sequence, call, TruncateError, f"rollback that keeps {keep}")
            assert 0 <= min(getattr(error, "allowed", ()), default=-1) <= most, error
        elif not self.ran_out(sequence, call, "rollback"):
            sequence.cut(tuple(m + keep for m in marked))
            sequence.marks.pop()
            sequence.promised.pop()
        self.equal(sequence.cache.lengths, sequence.lengths, "lengths after a rollback")

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence)
    def commit(self, which: int) -> None:
        """Keep a draft."""
        sequence = self.pick(which)
        if not sequence.marks:
            self.refused(sequence, sequence.cache.commit, StateError, "commit without a mark")
            return
        sequence.cache.commit()
        sequence.marks.pop()
        sequence.promised.pop()

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence, pages=st.integers(1, 6), more=st.integers(0, 30), near=st.booleans())
    def adopt(self, which: int, pages: int, more: int, near: bool) -> None:
        """A new sequence begins with the pages of another; `near`: with pages that there are."""
        donor = self.pick(which)
        spec = donor.spec.layer(0)
        held = spec.sealed(len(donor.tokens[0]))
        if near and held:
            pages, more = 1 + pages % held, spec.window + more
        made: list[Cache] = []
        if self.ran_out(donor, lambda: made.append(donor.cache.fork()), "fork"):
            return
        sequence = Sequence(made[0], [[] for _ in range(donor.spec.layers)])
        made[0].reset()
        self.sequences.append(sequence)
        self.adopt_into(sequence, donor, pages, more)
        if len(self.sequences) > MOST:
            self.end(self.sequences[0])

    @precondition(lambda self: self.backend.shares and len(self.sequences) > 1)
    @rule(which=any_sequence, into=any_sequence, pages=st.integers(1, 6), more=st.integers(0, 50))
    def adopt_somewhere(self, which: int, into: int, pages: int, more: int) -> None:
        """Mostly a refusal: of another model, not empty, itself, a stranger."""
        donor, sequence = self.pick(which), self.pick(into)
        if donor.spec == sequence.spec and (self.limit is None or donor is sequence):
            call = self.adopting(sequence, donor, pages, list(range(more)))
            if donor is sequence:
                self.refused(sequence, call, KvassayError, "adopting from itself")
            return
        self.adopt_into(sequence, donor, pages, more)

    def adopting(
        self, sequence: Sequence, donor: Sequence, pages: int, tokens: list[int]
    ) -> Callable[[], None]:
        """The call, for layer 0."""
        k, v = (rows(sequence.spec, tokens, stream) for stream in (0, 1))
        return functools.partial(sequence.cache.adopt, 0, donor.cache, pages, k, v)

    def adopt_into(self, sequence: Sequence, donor: Sequence, pages: int, more: int) -> None:
        """Layer 0 of a sequence takes over pages of a donor of its lineage, or refuses by name."""
        spec = sequence.spec.layer(0)
        tokens = [(5 * i + 100) % ROWS for i in range(more)]
        call = self.adopting(sequence, donor, pages, tokens)
        if donor.spec != sequence.spec:
            error = self.refused(sequence, call, IdentityError, "a donor of another model")
            assert getattr(error, "field", "").startswith("identity."), error
            return
        enough = pages <= spec.sealed(len(donor.tokens[0])) and more >= spec.window
        if sequence.tokens[0] or not enough:
            self.refused(sequence, call, StateError, "adopting what is not there, or not empty")
            return
        try:
            if self.ran_out(sequence, call, "adopt"):
                return
        except StateError:
            assert spec.span, "refused though the donor retired nothing"
            return
        shared = spec.sinks + pages * spec.page_tokens
        sequence.tokens[0] = donor.tokens[0][:shared] + tokens
        self.equal(sequence.cache.lengths, sequence.lengths, "lengths after an adoption")

    def append(self, which: int, layer: int, count: int, first: int) -> None:
        """The rule of the machine itself."""
        raise NotImplementedError
