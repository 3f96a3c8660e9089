"""The reference cache: one state a layer, replaced as a whole when an operation has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from kvassay.backend.checks import (
    check_append,
    check_count,
    check_donor,
    check_layer,
    check_queries,
    check_room,
    check_score_query,
    check_tokens,
    require_ieee,
)
from kvassay.errors import (
    CacheMemoryError,
    InputError,
    KvassayError,
    SpanError,
    StateError,
    TruncateError,
)
from kvassay.page.dump import LayerDump, pack_dump, parse_dump
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import Spec

from .drafts import Marked
from .layer import LayerState
from .lineage import Lineage

_T = TypeVar("_T")


class ReferenceCache(Cache):
    """One sequence in numpy arrays and page bytes, per docs/lifecycle.md."""

    def __init__(self, spec: Spec, lineage: Lineage | None = None) -> None:
        """An empty cache; of one lineage are forks, and the caches of a pool."""
        self.spec = spec
        self._lineage = lineage or Lineage(spec)
        self._states: list[LayerState] = []
        self._marks: list[list[Marked]] = []
        self._closed = False
        self._lineage.join(self, self._states)
        self._change(self._empty())
        self._start_counting()

    @classmethod
    def restored(cls, spec: Spec, data: bytes, lineage: Lineage | None = None) -> ReferenceCache:
        """The cache of a dump; see `Backend.restore_bytes`."""
        layers: list[LayerDump] = parse_dump(spec, data)
        cache = cls(spec, lineage)
        cache._change(
            [state.restored(dump) for state, dump in zip(cache._states, layers, strict=True)]
        )
        cache._note_peak()
        return cache

    def _empty(self) -> list[LayerState]:
        return [
            LayerState.empty(layer_spec, layer, self.spec.identity, self._lineage.kernels)
            for layer, layer_spec in enumerate(self.spec.layer_specs)
        ]

    def _change(self, states: list[LayerState]) -> None:
        """Take these states, if the lineage has room for them."""
        self._lineage.exchange(self._states, states)
        self._states[:] = states

    def _start_counting(self) -> None:
        self._encoded = self._scanned = self._peak = 0
        self._ran = False
        self._note_peak()

    def _note_peak(self) -> None:
        self._held = [sum(state.nbytes().values()) for state in self._states]
        self._peak = max(self._peak, self._table_bytes() + sum(self._held))

    def _table_bytes(self) -> int:
        return self._lineage.table_bytes

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        if not len(keys):
            return
        require_ieee()
        before = self._states[layer]
        check_room(layer, before.length, len(keys))
        after = _computing(lambda: before.appended(keys, values, retire=not self._marks))
        self._take(layer, after, after.sealed - before.sealed)

    def _take(self, layer: int, after: LayerState, encoded: int) -> None:
        """What was appended. One statement makes it so: whatever interrupts finds all or nothing
        of it."""
        before, held = self._states[layer], list(self._held)
        held[layer] = sum(after.nbytes().values())
        peak = max(self._peak, self._table_bytes() + sum(held))
        encoded += self._encoded
        try:
            self._lineage.exchange((before,), (after,))
            self._states[layer], self._held, self._peak, self._encoded, self._ran = (
                *(after, held),
                *(peak, encoded, True),
            )
        except KvassayError:
            raise
        except BaseException:
            self._lineage.recount()
            raise

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        state = self._states[layer]
        queries = check_queries(self.spec, layer, q, state.length)
        for visible in range(state.length - len(queries) + 1, state.length + 1):
            if state.unreachable(visible):
                raise SpanError(
                    f"attend: the query at position {visible - 1} of layer {layer} attends "
                    f"tokens that left the span and were retired; ask for fewer queries at once"
                )
        require_ieee()
        out, scanned = _computing(lambda: self._lineage.kernels.attend(state, queries))
        self._scanned += scanned
        self._ran = True
        return out.reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        state = self._states[layer]
        query = check_score_query(self.spec, layer, q, state.length)
        require_ieee()
        out, scanned = _computing(lambda: self._lineage.kernels.scores(state, query))
        self._scanned += scanned
        self._ran = True
        return out

    @property
    def lengths(self) -> tuple[int, ...]:
        require_open(self._closed)
        return tuple(state.length for state in self._states)

    @property
    def nbytes(self) -> dict[str, int]:
        require_open(self._closed)
        held = dict.fromkeys(BYTE_PARTS, 0)
        for state in self._states:
            for part, size in state.nbytes().items():
                held[part] += size
        held["headers"] += self._table_bytes()
        kept = (layer.kept for mark in self._marks for layer in mark)
        held["staging"] += sum(rows.bytes_of(rows.used) for rows in kept)
        return held

    @property
    def counters(self) -> Counters:
        require_open(self._closed)
        ran = self._lineage.kernels.ran if self._ran else ()
        return Counters(self._encoded, self._scanned, ran, self._peak)

    def pages(self, layer: int) -> list[bytes]:
        require_open(self._closed)
        return [bytes(page) for page in self._states[check_layer(self.spec, layer)].live_pages()]

    def truncate(self, n: int) -> None:
        require_open(self._closed)
        n = check_tokens(n, self.length)
        refusal = self._refusal(n)
        if refusal is not None:
            allowed = _nearest(n, self.length, lambda length: self._refusal(length) is None)
            message = f"{refusal}; nearest allowed: {' or '.join(map(str, allowed))}"
            if isinstance(refusal, TruncateError):
                raise TruncateError(message, allowed=allowed)
            raise type(refusal)(message)
        self._change([state.cut(n) for state in self._states])
        self._marks = []
        self._note_peak()

    def _refusal(self, n: int) -> StateError | None:
        refusals = (state.refusal(n) for state in self._states)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def mark(self, tokens: int) -> None:
        require_open(self._closed)
        tokens = check_count("mark: tokens", tokens)
        marked = _computing(lambda: [Marked.of(state, tokens) for state in self._states])
        self._marks = [*self._marks, marked]

    def rollback(self, keep: int = 0) -> None:
        mark = self._newest("rollback")
        keep = check_count("rollback: keep", keep)
        pairs = list(zip(mark, self._states, strict=True))
        most = min(state.length - layer.length for layer, state in pairs)
        if keep > most:
            raise StateError(
                f"rollback: to keep {keep} tokens, but only {most} came since the mark"
            )

        def reaches(keep: int) -> bool:
            return all(layer.reaches(state, keep) for layer, state in pairs)

        if not reaches(keep):
            allowed = _nearest(keep, most, reaches)
            raise TruncateError(
                f"rollback: to keep {keep} tokens needs fp16 tokens that exist only as codes; "
                f"nearest allowed: {' or '.join(map(str, allowed))}",
                allowed=allowed,
            )
        states = _computing(lambda: [layer.rolled_back(state, keep) for layer, state in pairs])
        self._forget_newest(states)

    def commit(self) -> None:
        self._newest("commit")
        self._forget_newest(self._states)

    def _newest(self, call: str) -> list[Marked]:
        require_open(self._closed)
        if not self._marks:
            raise StateError(f"{call}: no mark; make one first")
        return self._marks[-1]

    def _forget_newest(self, states: list[LayerState]) -> None:
        """With the last mark goes what its appends would have retired."""
        if len(self._marks) == 1:
            states = [replace(state.without_pages(state.due), due=0) for state in states]
        self._change(states)
        self._marks = self._marks[:-1]
        self._note_peak()

    def adopt(self, layer: int, donor: Cache, pages: int, k: FloatArray, v: FloatArray) -> None:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        check_donor(self.spec, donor)
        pages = check_count("adopt: pages", pages)
        keys, values = check_append(self.spec, layer, k, v)
        require_ieee()
        from_ = self._donor_layer(donor, layer, pages, len(keys))
        before = self._states[layer]
        after = _computing(lambda: before.adopted(from_, pages, keys, values))
        self._take(layer, after, after.sealed - pages)

    def _donor_layer(self, donor: Cache, layer: int, pages: int, tokens: int) -> LayerState:
        own = self._states[layer]
        if (
            not isinstance(donor, ReferenceCache)
            or donor is self
            or donor._lineage is not self._lineage
        ):
            raise InputError("adopt: the donor must be another cache of the same pool, or a fork")
        require_open(donor._closed)
        state = donor._states[layer]
        if own.length:
            raise StateError(
                f"adopt: layer {layer} holds {own.length} tokens already; only an empty one can "
                f"adopt"
            )
        if pages < 1 or state.retired or pages > len(state.pages):
            raise StateError(
                f"adopt: layer {layer} of the donor has pages {state.retired} .. {state.sealed}, "
                f"not the first {pages}"
            )
        if tokens < own.spec.window:
            raise StateError(
                f"adopt: {tokens} tokens after the pages; layer {layer} needs its window of "
                f"{own.spec.window} at least"
            )
        return state

    def fork(self) -> ReferenceCache:
        require_open(self._closed)
        states = _computing(lambda: [state.forked() for state in self._states])
        copy = type(self)(self.spec, self._lineage)
        copy._change(states)
        copy._note_peak()
        return copy

    def reset(self) -> None:
        require_open(self._closed)
        self._change(self._empty())
        self._marks = []
        self._start_counting()

    def close(self) -> None:
        if not self._closed:
            self._change([])
        self._closed = True
        self._marks = []

    def dump_bytes(self) -> bytes:
        require_open(self._closed)
        return _computing(lambda: pack_dump(self.spec, [state.dumped() for state in self._states]))


def _computing(work: Callable[[], _T]) -> _T:
    """Name the error where memory runs out. Underflow is no error, however numpy is set."""
    try:
        with np.errstate(under="ignore"):
            return work()
    except MemoryError as error:
        refused = CacheMemoryError(
            f"reference: {error or 'out of memory'}; the cache is as it was",
            asked=getattr(error, "asked", None),
            left=getattr(error, "left", None),
        )
    # Not inside of `except`: there it would keep the frames of the work, and the memory they hold.
    raise refused


def _nearest(n: int, longest: int, allowed: Callable[[int], bool]) -> tuple[int, ...]:
    """The allowed lengths next to n, below and above. 0 is always allowed."""
    below = next(filter(allowed, range(n - 1, -1, -1)), None)
    above = next(filter(allowed, range(n + 1, longest + 1)), None)
    return tuple(length for length in (below, above) if length is not None)
