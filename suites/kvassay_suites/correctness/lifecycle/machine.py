"""The state machine that hypothesis drives: operations on sequences that share what they can."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import rule

import kvassay
from kvassay.errors import (
    CacheMemoryError,
    IdentityError,
    NonFiniteError,
    SpanError,
    StateError,
    TruncateError,
)
from kvassay.protocol import Cache

from .oracle import ROWS, Sequence, cuttable, rows
from .sharing import SharingRules
from .world import IDENTITIES, LONGEST, MOST, TIGHT, any_sequence, counts, query


class LifecycleMachine(SharingRules):
    """Every operation of the protocol."""

    @rule(which=any_sequence, layer=st.integers(0, 2), count=counts, first=st.integers(0, ROWS - 1))
    def append(self, which: int, layer: int, count: int, first: int) -> None:
        """To one layer, or to all; memory may run out in a tight pool, and then nothing is in."""
        sequence = self.pick(which)
        for at in range(sequence.spec.layers) if layer == 2 else [layer % sequence.spec.layers]:
            n = min(count, LONGEST - len(sequence.tokens[at]))
            tokens = [(first + 3 * i) % ROWS for i in range(n)]
            k, v = (rows(sequence.spec, tokens, stream) for stream in (0, 1))
            call = functools.partial(sequence.cache.append, at, k, v)
            if not self.ran_out(sequence, call, "append"):
                sequence.tokens[at] += tokens
            self.equal(sequence.cache.lengths, sequence.lengths, "lengths after an append")

    @rule(which=any_sequence, count=st.integers(1, 40), where=st.integers(0, 39))
    def cancelled(self, which: int, count: int, where: int) -> None:
        """An append that a number stops changes nothing."""
        sequence = self.pick(which)
        k, v = (rows(sequence.spec, list(range(count)), stream) for stream in (0, 1))
        (k if where % 2 else v)[where % count, 0, where % 16] = np.nan
        self.refused(sequence, lambda: sequence.cache.append(0, k, v), NonFiniteError, "NaN")

    @rule(which=any_sequence, n=st.integers(1, 12))
    def attend(self, which: int, n: int) -> None:
        """Several queries; those of tokens that left the span may be refused, never answered
        otherwise."""
        sequence = self.pick(which)
        length = len(sequence.tokens[0])
        q = query(sequence.spec, n)
        if n > length:
            call = functools.partial(sequence.cache.attend, 0, q)
            self.refused(sequence, call, StateError, f"{n} queries over {length} tokens")
            return
        try:
            found = sequence.cache.attend(0, q)
        except SpanError:
            assert sequence.spec.span, "SpanError without a span"
            return
        with sequence.fresh(self.truth) as fresh:
            self.same(found, fresh.attend(0, q), f"attention of {n} queries")

    @rule(which=any_sequence, share=st.floats(0, 1), back=st.integers(0, 20), near=st.booleans())
    def truncate(self, which: int, share: float, back: int, near: bool) -> None:
        """Anywhere, or a few tokens back."""
        sequence = self.pick(which)
        length = min(sequence.lengths)
        n = max(0, length - back) if near else int(share * length)
        layers = zip(sequence.spec.layer_specs, sequence.lengths, strict=True)
        if not all(cuttable(layer, held, n) for layer, held in layers):
            call = functools.partial(sequence.cache.truncate, n)
            error = self.refused(sequence, call, (TruncateError, SpanError), f"truncate to {n}")
            self.reachable(sequence, error)
            return
        try:
            sequence.cache.truncate(n)
        except SpanError:
            assert sequence.spec.span, "SpanError without a span"
            self.equal(sequence.cache.lengths, sequence.lengths, "lengths after a refusal")
            return
        sequence.cut((n,) * sequence.spec.layers)
        sequence.marks, sequence.promised = [], []
        self.equal(sequence.cache.lengths, sequence.lengths, "lengths after a truncation")

    def reachable(self, sequence: Sequence, error: Exception) -> None:
        """Lengths that a refusal names can be reached."""
        for n in getattr(error, "allowed", ()):
            try:
                fork = sequence.cache.fork()
            except CacheMemoryError:
                return
            with fork:
                fork.truncate(n)
                self.equal(fork.lengths, (n,) * sequence.spec.layers, f"a fork cut to {n}")

    @rule(which=any_sequence, last=st.booleans())
    def fork(self, which: int, last: bool) -> None:
        """A second sequence; the oldest one goes where there would be too many."""
        sequence = self.pick(which)
        made: list[Cache] = []
        if self.ran_out(sequence, lambda: made.append(sequence.cache.fork()), "fork"):
            return
        self.sequences.append(Sequence(made[0], [list(layer) for layer in sequence.tokens]))
        if len(self.sequences) > MOST:
            self.end(self.sequences[-2 if last else 0])

    @rule(which=any_sequence)
    def reset(self, which: int) -> None:
        """As new, byte for byte."""
        sequence = self.pick(which)
        sequence.cache.reset()
        sequence.tokens = [[] for _ in range(sequence.spec.layers)]
        sequence.marks, sequence.promised = [], []
        with self.truth.prepare(sequence.spec) as new:
            if self.backend.exact:
                self.equal(sequence.cache.dump(), new.dump(), "dump after a reset")

    @rule(which=any_sequence, through_file=st.booleans(), other=st.booleans())
    def dump_and_restore(self, which: int, through_file: bool, other: bool) -> None:
        """Through a file or not, through the reference or not; the sequence goes on restored."""
        sequence = self.pick(which)
        data = sequence.cache.dump()
        if other:
            with self.truth.restore(sequence.spec, data) as read:
                data = read.dump()
        if through_file:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "dump"
                sequence.cache.dump(path)
                self.equal(path.read_bytes(), data, "a dump in a file")
        made: list[Cache] = []
        restore = self.restoring(sequence.spec, data)
        if self.ran_out(sequence, lambda: made.append(restore()), "restore"):
            return
        sequence.cache.close()
        sequence.cache, sequence.marks, sequence.promised = made[0], [], []
        self.equal(made[0].dump(), data, "a restored dump")

    def restoring(self, spec: kvassay.Spec, data: bytes) -> Callable[[], Cache]:
        """How a dump comes back: into the pool of its spec, if it has one."""
        if spec in self.pools:
            return functools.partial(self.pools[spec].restore_bytes, data)
        return functools.partial(self.backend.restore, spec, data)

    @rule(which=any_sequence, identity=st.integers(0, len(IDENTITIES) - 1))
    def switch(self, which: int, identity: int) -> None:
        """Another model or adapter: the old state is refused by name, the sequence starts anew."""
        sequence, spec = self.pick(which), self.spec(identity)
        if spec == sequence.spec:
            return
        data = sequence.cache.dump()
        old, new = sequence.spec.identity, spec.identity
        assert old is not None
        assert new is not None
        other = [name for name in ("adapter", "model") if getattr(old, name) != getattr(new, name)]
        call = functools.partial(self.backend.restore, spec, data)
        error = self.refused(sequence, call, IdentityError, "a dump of another model")
        self.equal(getattr(error, "field", ""), f"identity.{other[0]}", "the field that differs")
        at = self.sequences.index(sequence)
        try:
            self.sequences[at] = self.new(spec)
        except CacheMemoryError:
            assert self.limit == TIGHT
            return
        sequence.cache.close()

    @rule(which=any_sequence)
    def compare(self, which: int) -> None:
        """In the middle too, so that a fault is found where it happens."""
        self.check(self.pick(which))
