"""What the state machine knows: sequences, their pools, and how they are made and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

import kvassay
from kvassay.errors import (
    CacheMemoryError,
)
from kvassay.protocol import Backend, Pool
from kvassay.registry import REFERENCE

from ...common.specs import make_spec
from .oracle import Sequence

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


class World(RuleBasedStateMachine):
    """Up to three sequences of one spec and several identities. Subclasses name the target."""

    backend: ClassVar[Backend]
    #: Things compared so far, over all examples.
    compared: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.sequences: list[Sequence] = []
        self.pools: dict[kvassay.Spec, Pool] = {}
        self.truth = kvassay.load(REFERENCE) if self.backend.exact else self.backend

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
                    q = query(sequence.spec, 1)[0]
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

    def end(self, sequence: Sequence) -> None:
        """Close a sequence: no other notices."""
        self.sequences.remove(sequence)
        sequence.cache.close()

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


def query(spec: kvassay.Spec, n: int) -> np.ndarray[Any, Any]:
    """n queries, always the same."""
    shape = (n, spec.query_heads, spec.head_dim)
    return np.random.default_rng(n).standard_normal(shape, np.float32)


def _short(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
