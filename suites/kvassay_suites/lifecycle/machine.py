"""The state machine that hypothesis drives: operations on sequences that share what they can."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import kvassay
from kvassay.errors import (
    CacheMemoryError,
    IdentityError,
    NonFiniteError,
    SpanError,
    StateError,
    TruncateError,
)
from kvassay.protocol import Backend, Cache, Pool

from ..common import REFERENCE, make_spec
from .oracle import ROWS, Sequence, cuttable, keepable, rows

SHAPE: Final = {"kv_heads": 1, "query_heads": 2, "head_dim": 16, "page_tokens": 16}
CODECS: Final[tuple[dict[str, Any], ...]] = (
    {"keys": "fp16", "values": "fp16"},
    {
        **{"keys": "turbo:3.5", "values": "turbo:3"},
        **{"key_centre": "page", "value_centre": "frozen"},
    },
    {"keys": "turbo:2+qjl", "values": "kivi:2", "key_centre": "frozen", "scale": "u8log"},
    {"keys": "kivi:4", "values": "turbo:4", "key_centre": "frozen", "scale": "fp16"},
)
#: Model and adapter, one changed at a time.
IDENTITIES: Final = (("one", "none"), ("one", "lora"), ("two", "none"))
MOST: Final = 3
LONGEST: Final = 160
#: Bytes that a pool may hold, so small that appends are refused now and then.
TIGHT: Final = 400_000

counts = st.integers(0, 60)
any_sequence = st.integers(0, MOST - 1)


class LifecycleMachine(RuleBasedStateMachine):
    """Up to three sequences of one spec and several identities. Subclasses name the target."""

    backend: ClassVar[Backend]
    #: Things compared so far, over all examples.
    compared: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.sequences: list[Sequence] = []
        self.pools: dict[kvassay.Spec, Pool] = {}
        self.truth = kvassay.load(REFERENCE) if self.backend.exact else self.backend

    # --- making and comparing ---

    @initialize(
        codec=st.sampled_from(CODECS),
        window=st.sampled_from([0, 3, 20]),
        sinks=st.sampled_from([0, 2]),
        span=st.sampled_from([None, None, 1, 9, 40]),
        layers=st.sampled_from([1, 2]),
        pooled=st.sampled_from([None, 1 << 30, TIGHT]),
        protect=st.booleans(),
    )
    def begin(
        self, codec: dict[str, Any], protect: bool, pooled: int | None, **policy: Any
    ) -> None:
        """A spec; with `protect` its last layer is fp16, whatever the others are."""
        fields: dict[str, Any] = {**SHAPE, **codec, **policy}
        if protect and policy["layers"] > 1:
            fields["layer_overrides"] = {1: {"keys": "fp16", "values": "fp16"}}
        self.fields = fields
        self.limit = pooled if self.backend.shares else None
        assume(self.backend.supports(self.spec(0)))
        self.sequences.append(self.new(self.spec(0)))

    def spec(self, identity: int) -> kvassay.Spec:
        """The spec of this run under one of the identities."""
        model, adapter = IDENTITIES[identity]
        return make_spec(**self.fields, identity=kvassay.Identity(model=model, adapter=adapter))

    def new(self, spec: kvassay.Spec) -> Sequence:
        """An empty sequence, in the pool of its spec if this run has pools."""
        if self.limit is None:
            cache = self.backend.prepare(spec)
        else:
            if spec not in self.pools:
                self.pools[spec] = self.backend.pool(spec, self.limit)
            cache = self.pools[spec].prepare()
        return Sequence(cache, [[] for _ in range(spec.layers)])

    def pick(self, number: int) -> Sequence:
        """A sequence that there is."""
        return self.sequences[number % len(self.sequences)]

    def equal(self, found: object, expected: object, what: str) -> None:
        """Both are equal, bit for bit."""
        type(self).compared += 1
        assert found == expected, f"{what}: {_short(found)} instead of {_short(expected)}"

    def refused(
        self,
        sequence: Sequence,
        call: Callable[[], object],
        errors: type[Exception] | tuple[type[Exception], ...],
        what: str,
    ) -> Exception:
        """The call raises one of these errors, and the cache is what it was."""
        before = sequence.cache.dump()
        try:
            call()
        except errors as error:
            self.equal(sequence.cache.dump(), before, f"{what}: the cache after a refusal")
            self.equal(sequence.cache.lengths, sequence.lengths, f"{what}: lengths after a refusal")
            return error
        raise AssertionError(f"{what} must be refused")

    def check(self, sequence: Sequence) -> None:
        """The cache is what a new one becomes by these tokens, and so it answers."""
        with sequence.fresh(self.truth) as fresh:
            self.equal(sequence.cache.lengths, fresh.lengths, "lengths")
            if self.backend.exact:
                self.equal(sequence.cache.dump(), fresh.dump(), "dump")
            for layer, tokens in enumerate(sequence.tokens):
                if tokens:
                    q = _query(sequence.spec, 1)[0]
                    for call in ("attend", "scores"):
                        found = getattr(sequence.cache, call)(layer, q)
                        wanted = getattr(fresh, call)(layer, q)
                        self.same(found, wanted, f"{call} of layer {layer}")

    def same(self, found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], what: str) -> None:
        """Equal bits; of a backend that declares a bound, equal within it."""
        if self.backend.exact:
            self.equal(found.tobytes(), wanted.tobytes(), what)
            return
        type(self).compared += 1
        assert np.allclose(found, wanted, rtol=0, atol=self.backend.bound or 0), what

    # --- operations ---

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

    def ran_out(self, sequence: Sequence, call: Callable[[], object], what: str) -> bool:
        """Whether the pool had no room; the cache is then as it was."""
        before = sequence.cache.dump() if self.limit == TIGHT else b""
        try:
            call()
        except CacheMemoryError:
            assert self.limit == TIGHT, f"{what}: out of memory without a tight limit"
            self.equal(sequence.cache.dump(), before, f"{what}: the cache when memory ran out")
            return True
        return False

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
        q = _query(sequence.spec, n)
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

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence, tokens=st.integers(0, 40))
    def mark(self, which: int, tokens: int) -> None:
        """Begin a draft."""
        sequence = self.pick(which)
        if not self.ran_out(sequence, lambda: sequence.cache.mark(tokens), "mark"):
            sequence.marks.append(sequence.lengths)
            sequence.promised.append(tokens)

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

    def end(self, sequence: Sequence) -> None:
        """Close a sequence: no other notices."""
        self.sequences.remove(sequence)
        sequence.cache.close()

    @precondition(lambda self: self.backend.shares)
    @rule(which=any_sequence, into=any_sequence, pages=st.integers(1, 6), more=st.integers(0, 50))
    def adopt(self, which: int, into: int, pages: int, more: int) -> None:
        """An empty sequence begins with another's pages."""
        donor, sequence = self.pick(which), self.pick(into)
        spec = sequence.spec.layer(0)
        shared = spec.sinks + pages * spec.page_tokens
        tokens = [(5 * i) % ROWS for i in range(more)]
        k, v = (rows(sequence.spec, tokens, stream) for stream in (0, 1))
        call = functools.partial(sequence.cache.adopt, 0, donor.cache, pages, k, v)
        if donor.spec != sequence.spec:
            error = self.refused(sequence, call, IdentityError, "a donor of another model")
            assert getattr(error, "field", "").startswith("identity."), error
            return
        family = self.limit is not None and donor is not sequence
        fits = not sequence.tokens[0] and more >= spec.window
        held = pages <= spec.sealed(len(donor.tokens[0])) and not spec.span
        if not (family and fits and held):
            if spec.span and family and fits:
                return  # whether the donor retired its first pages is not the oracle's to say
            if family or donor is sequence:
                self.refused(sequence, call, (StateError, kvassay.KvassayError), "adopt")
            return
        if not self.ran_out(sequence, call, "adopt"):
            sequence.tokens[0] = donor.tokens[0][:shared] + tokens
        self.equal(sequence.cache.lengths, sequence.lengths, "lengths after an adoption")

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

    def teardown(self) -> None:
        """At the end every sequence is what its tokens make it."""
        try:
            for sequence in self.sequences:
                self.check(sequence)
        finally:
            for sequence in self.sequences:
                sequence.cache.close()
            for pool in self.pools.values():
                pool.close()


def _query(spec: kvassay.Spec, n: int) -> np.ndarray[Any, Any]:
    shape = (n, spec.query_heads, spec.head_dim)
    return np.random.default_rng(n).standard_normal(shape, np.float32)


def _short(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
