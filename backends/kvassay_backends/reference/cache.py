"""The reference cache: one state a layer, replaced as a whole when an operation has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from kvassay.checks import (
    check_append,
    check_layer,
    check_queries,
    check_score_query,
    check_tokens,
)
from kvassay.dumpformat import LayerDump, pack_dump, parse_dump
from kvassay.errors import CacheMemoryError, SpanError, StateError, TruncateError
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import Spec

from .arithmetic import require_ieee
from .attend import attend, scores
from .layer import LayerState
from .transform import KEYS, SIGNS, VALUES, Transform

VARIANT = "scalar"
_T = TypeVar("_T")


def _transforms(spec: Spec) -> dict[int, Transform]:
    """The transforms that some layer of the spec uses."""
    layers = spec.layer_specs
    needed = {
        KEYS: any(layer.keys.rotated for layer in layers),
        VALUES: any(layer.values.rotated for layer in layers),
        SIGNS: any(layer.keys.qjl for layer in layers),
    }
    return {
        stream: Transform(spec.head_dim, spec.rounds, spec.seed, stream)
        for stream, used in needed.items()
        if used
    }


class ReferenceCache(Cache):
    """One sequence in numpy arrays and page bytes, per docs/lifecycle.md."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._transforms = _transforms(spec)
        self._states = self._empty()
        self._closed = False
        self._start_counting()

    @classmethod
    def restored(cls, spec: Spec, data: bytes) -> ReferenceCache:
        """The cache of a dump; see `Backend.restore_bytes`."""
        layers: list[LayerDump] = parse_dump(spec, data)
        cache = cls(spec)
        cache._states = [
            state.restored(dump) for state, dump in zip(cache._states, layers, strict=True)
        ]
        cache._note_peak()
        return cache

    def _empty(self) -> list[LayerState]:
        return [
            LayerState.empty(layer_spec, layer, self.spec.identity, self._transforms)
            for layer, layer_spec in enumerate(self.spec.layer_specs)
        ]

    def _start_counting(self) -> None:
        self._encoded = self._scanned = self._peak = 0
        self._ran = False
        self._note_peak()

    def _note_peak(self) -> None:
        self._held = [sum(state.nbytes().values()) for state in self._states]
        self._peak = max(self._peak, self._table_bytes() + sum(self._held))

    def _table_bytes(self) -> int:
        tables = (transform.arrays() for transform in self._transforms.values())
        return sum(array.nbytes for arrays in tables for array in arrays)

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        if not len(keys):
            return
        require_ieee()
        before = self._states[layer]
        after = _computing(lambda: before.appended(keys, values))
        self._states[layer] = after
        self._encoded += after.sealed - before.sealed
        self._ran = True
        self._held[layer] = sum(after.nbytes().values())
        self._peak = max(self._peak, self._table_bytes() + sum(self._held))

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
        out, scanned = _computing(lambda: attend(state, self._transforms, queries))
        self._scanned += scanned
        self._ran = True
        return out.reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        state = self._states[layer]
        query = check_score_query(self.spec, layer, q, state.length)
        require_ieee()
        out, scanned = _computing(lambda: scores(state, self._transforms, query))
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
        return held

    @property
    def counters(self) -> Counters:
        require_open(self._closed)
        ran = (VARIANT,) if self._ran else ()
        return Counters(self._encoded, self._scanned, ran, self._peak)

    def pages(self, layer: int) -> list[bytes]:
        require_open(self._closed)
        return list(self._states[check_layer(self.spec, layer)].live_pages())

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
        self._states = [state.cut(n) for state in self._states]
        self._note_peak()

    def _refusal(self, n: int) -> StateError | None:
        refusals = (state.refusal(n) for state in self._states)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def fork(self) -> ReferenceCache:
        require_open(self._closed)
        copy = ReferenceCache(self.spec)
        copy._states = _computing(lambda: [state.forked() for state in self._states])
        copy._note_peak()
        return copy

    def reset(self) -> None:
        require_open(self._closed)
        self._states = self._empty()
        self._start_counting()

    def close(self) -> None:
        self._closed = True
        self._states = []
        self._transforms = {}

    def dump_bytes(self) -> bytes:
        require_open(self._closed)
        return _computing(lambda: pack_dump(self.spec, [state.dumped() for state in self._states]))


def _computing(work: Callable[[], _T]) -> _T:
    """Name the error where memory runs out. Underflow is no error, however numpy is set."""
    try:
        with np.errstate(under="ignore"):
            return work()
    except MemoryError as error:
        raise CacheMemoryError(
            f"reference: {error or 'out of memory'}; the cache is as it was"
        ) from None


def _nearest(n: int, longest: int, allowed: Callable[[int], bool]) -> tuple[int, ...]:
    """The allowed lengths next to n, below and above. 0 is always allowed."""
    below = next(filter(allowed, range(n - 1, -1, -1)), None)
    above = next(filter(allowed, range(n + 1, longest + 1)), None)
    return tuple(length for length in (below, above) if length is not None)
