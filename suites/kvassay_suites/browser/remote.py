"""A library inside a JavaScript engine as a Backend: suites drive it like any other.

Tokens, queries, pages, dumps and outputs cross as raw bytes; the comparison happens here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import numpy as np

from kvassay import errors
from kvassay.backend.checks import (
    check_append,
    check_layer,
    check_queries,
    check_score_query,
    check_tokens,
)
from kvassay.protocol import BYTE_PARTS, Backend, Cache, Counters, FloatArray, Support, require_open
from kvassay.spec import Spec

from .link import EngineError, EngineFailure, Head, Link

#: Errors of the host that have another name here.
_RENAMED: Final = {"SpecError": errors.SpecError, "StaleViewError": errors.StateError}


class RemoteBackend(Backend):
    """One variant in one engine. Raises UnavailableError where it does not run there."""

    def __init__(self, link: Link, engine: str, variant: str, memory_limit: int | None = None):
        self.name = engine
        self.variant = variant
        self.link = link
        head, _ = self.call("load", variant=variant, memoryLimit=memory_limit)
        #: SHA-256 of the module that the engine loaded.
        self.module: str = head["module"]
        self.exact = bool(head["exact"])
        self.build_id = str(head["buildId"])

    def call(self, command: str, *parts: bytes, **fields: Any) -> tuple[Head, list[bytes]]:
        """A command of the page, with the errors of kvassay."""
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            return self.link.call(command, parts, **given)
        except EngineFailure as failure:
            _raise(failure.head)

    def memory(self) -> dict[str, int]:
        """Linear memory: bytes, pages, growths, used, highWater, cap, left."""
        head, _ = self.call("memory")
        return {name: int(value) for name, value in head.items() if name != "digests"}

    def supports(self, spec: Spec) -> Support:
        head, _ = self.call("supports", spec=plain(spec))
        return Support(bool(head["ok"]), str(head["reason"]))

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        head, _ = self.call("prepare", spec=plain(spec))
        return RemoteCache(self, spec, head["cache"])

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        head, _ = self.call("restore", data, spec=plain(spec))
        return RemoteCache(self, spec, head["cache"])


class RemoteCache(Cache):
    """A cache in the engine, by its handle."""

    def __init__(self, backend: RemoteBackend, spec: Spec, handle: int) -> None:
        self.spec = spec
        self._backend = backend
        self.handle = handle
        self._closed = False

    def _call(self, command: str, *parts: bytes, **fields: Any) -> tuple[Head, list[bytes]]:
        require_open(self._closed)
        return self._backend.call(command, *parts, cache=self.handle, **fields)

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        keys, values = check_append(self.spec, check_layer(self.spec, layer), k, v)
        self._call("append", keys.tobytes(), values.tobytes(), layer=layer)

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        length = self.lengths[check_layer(self.spec, layer)]
        queries = check_queries(self.spec, layer, q, length)
        _, (out,) = self._call("attend", queries.tobytes(), layer=layer)
        return _floats(out, q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        length = self.lengths[check_layer(self.spec, layer)]
        query = check_score_query(self.spec, layer, q, length)
        _, (out,) = self._call("scores", query.tobytes(), layer=layer)
        return _floats(out, (self.spec.query_heads, length))

    @property
    def lengths(self) -> tuple[int, ...]:
        head, _ = self._call("lengths")
        return tuple(head["lengths"])

    @property
    def nbytes(self) -> dict[str, int]:
        head, _ = self._call("stats")
        return {part: int(head["parts"][part]) for part in BYTE_PARTS}

    @property
    def counters(self) -> Counters:
        head, _ = self._call("stats")
        return Counters(
            pages_encoded=head["pages_encoded"],
            pages_scanned=head["pages_scanned"],
            variants_ran=tuple(head["ran"]),
            peak_bytes=head["peak_allocated"],
        )

    def pages(self, layer: int) -> list[bytes]:
        return self._call("pages", layer=check_layer(self.spec, layer))[1]

    def truncate(self, n: int) -> None:
        self._call("truncate", n=check_tokens(n, self.length))

    def fork(self) -> RemoteCache:
        head, _ = self._call("fork")
        return RemoteCache(self._backend, self.spec, head["cache"])

    def reset(self) -> None:
        self._call("reset")

    def close(self) -> None:
        if not self._closed:
            self._call("close")
            self._closed = True

    def dump_bytes(self) -> bytes:
        return self._call("dump")[1][0]


def plain(spec: Spec) -> dict[str, Any]:
    """The spec as JSON can carry it: JavaScript's numbers end at 2^53."""
    data: dict[str, Any] = json.loads(json.dumps(spec.to_dict()))
    return {**data, "seed": str(spec.seed)}


def _floats(data: bytes, shape: tuple[int, ...]) -> FloatArray:
    floats = np.frombuffer(data, "<f4").astype(np.float32)
    if floats.size != np.prod(shape):
        raise EngineError(f"{floats.size} floats came back, {shape} were expected")
    return floats.reshape(shape)


def _raise(head: Mapping[str, Any]) -> NoReturn:
    """The error of kvassay that a command of the page raised."""
    name, message = str(head.get("name")), str(head.get("message"))
    if name == "TruncateError":
        raise errors.TruncateError(message, allowed=tuple(head["allowed"]))
    if name == "IdentityError":
        raise errors.IdentityError(message, field=head["field"])
    if name == "NonFiniteError":
        place = {key: head[key] for key in ("layer", "token", "head", "channel")}
        raise errors.NonFiniteError(message, **place)
    kind = _RENAMED.get(name) or getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.KvassayError):
        raise kind(message)
    raise EngineError(f"{name}: {message}\n{head.get('stack', '')}")
