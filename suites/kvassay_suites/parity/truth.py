"""The reference's side of a case: what a target's values are compared with.

What the reference computes in a case depends on the case alone, so the tasks of a run share it: who
first compares a value keeps its digest, and where the value of another target has that digest the
reference computes nothing. Where it has not, or none is kept, the reference computes there and
then, from the tokens that survive: a kept digest spares work and decides nothing, for every
difference is found, counted and located by the reference's own value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

import kvassay
from kvassay.backend.sources import code_digest, sources_of
from kvassay.errors import SpanError
from kvassay.protocol import Backend, Cache, FloatArray
from kvassay.running import shared

Inputs = Sequence[tuple[FloatArray, FloatArray]]
Value = TypeVar("Value", bytes, list[bytes], FloatArray)
#: Kept in place of a digest where the reference refuses: there is nothing to compare with.
_REFUSED: Final = "refused"


class Truth:
    """The reference at the surviving tokens of a case, which is brought there when it is asked."""

    def __init__(
        self, reference: Backend, case: Mapping[str, Any], spec: kvassay.Spec, inputs: Inputs
    ) -> None:
        self._reference = reference
        self._spec = spec
        self._inputs = inputs
        self._key = _key(reference, case)
        self._kept: dict[str, str] = shared.recall(self._key) or {}
        self._found: dict[str, str] = {}
        self._held: list[int] = []
        self._dump, self._dumped = b"", [-1]
        self._cache: Cache | None = None
        self._cached: list[int] = []
        self._attended: dict[str, FloatArray] = {}

    def follow(self, held: Sequence[int]) -> None:
        """The tokens of these numbers survive now."""
        self._held = list(held)

    def give(self, what: str, dump: bytes, held: Sequence[int]) -> None:
        """Go on with what a target wrote of these tokens."""
        self.close()
        self._held = self._dumped = list(held)
        self._dump = dump
        if self._kept.get(what) != _digest(dump):
            self._kept = {}  # what others kept came of other bytes
        self._found[what] = _digest(dump)

    def value(self, what: str, found: Value, compute: Callable[[Cache], Value]) -> Value:
        """The reference's value: `found` itself where its digest is kept, else computed.

        `what` names it within the case. Raises SpanError where the reference does.
        """
        kept = self._kept.get(what)
        if kept == _REFUSED:
            raise SpanError(f"{what}: the reference refused")
        if kept == _digest(found):
            return found
        try:
            value = compute(self.cache)
        except SpanError:
            self._found[what] = _REFUSED
            raise
        self._found[what] = _digest(value)
        return value

    def attended(self, what: str, found: FloatArray, layer: int, q: FloatArray) -> FloatArray:
        """`value` of attention for the last queries of q (n, query_heads, d), as many as found has.

        An output depends on its own query alone, so those of all of q are computed, once.
        """
        n = len(found)

        def compute(cache: Cache) -> FloatArray:
            if what not in self._attended:
                try:
                    self._attended = {what: cache.attend(layer, q)}
                except SpanError:  # of queries that only some of them come before
                    return cache.attend(layer, q[-n:])
            return self._attended[what][-n:]

        return self.value(f"{what} {n}", found, compute)

    def share(self) -> None:
        """Let other tasks of this run know what was computed here."""
        if not self._found.items() <= self._kept.items():
            shared.keep(self._key, {**self._kept, **self._found})

    @property
    def cache(self) -> Cache:
        """The reference's cache: the tokens that it lacks come in one append."""
        if self._cache is None or self._held[: len(self._cached)] != self._cached:
            self.close()
            self._cache = self._begun()
        rest = self._held[len(self._cached) :]
        if rest:
            for layer, (k, v) in enumerate(self._inputs):
                self._cache.append(layer, k[rest], v[rest])
        self._cached = list(self._held)
        return self._cache

    def _begun(self) -> Cache:
        if self._held[: len(self._dumped)] == self._dumped:
            self._cached = self._dumped
            return self._reference.restore(self._spec, self._dump)
        self._cached = []
        return self._reference.prepare(self._spec, threads=1)

    def close(self) -> None:
        """Free the cache; the next value that is asked for makes another."""
        if self._cache is not None:
            self._cache.close()
        self._cache = None


def _key(reference: Backend, case: Mapping[str, Any]) -> str:
    """All that the reference's values in a case depend on."""
    asked = {name: case[name] for name in ("spec", "inputs", "seed", "ops")}
    code = [code_digest("kvassay"), code_digest("kvassay_suites"), sources_of(type(reference))]
    return json.dumps([asked, code, np.__version__], sort_keys=True)


def _digest(value: bytes | list[bytes] | FloatArray) -> str:
    """SHA-256 of a value, its parts and its shape."""
    parts: list[Any]
    if isinstance(value, np.ndarray):
        parts = [f"{value.dtype}{value.shape}".encode(), np.ascontiguousarray(value)]
    else:
        parts = [value] if isinstance(value, bytes) else value
    digest = hashlib.sha256()
    for part in parts:
        digest.update(memoryview(part).nbytes.to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
