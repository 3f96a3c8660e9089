"""Cases for backends that execute some specs only: what they do not offer is no evidence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from kvassay.errors import UnsupportedError
from kvassay.protocol import Backend, Cache, Pool, Support
from kvassay.spec import Spec

from .specs import CODEC_PAIRS, make_spec

Pair = tuple[str, str]
#: Codecs of keys and values that a case takes unless it is about certain ones.
USUAL: Final[Pair] = ("turbo:4", "turbo:4")
_IN_ITS_PLACE: Final = (("kivi:4", "kivi:4"), ("fp16", "fp16"), *CODEC_PAIRS)

_pair: ContextVar[Pair] = ContextVar("pair", default=USUAL)


class NotOffered(UnsupportedError):
    """A case needs a spec for which the backend says, when asked, that it does not execute it."""


class Offered(Backend):
    """A backend whose refusal of a spec that it never said it executes is NotOffered.

    What it says it executes and then refuses raises UnsupportedError, and is a fault.
    """

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        for name in ("name", "variant", "exact", "bound", "build_id", "shares"):
            setattr(self, name, getattr(inner, name))

    def supports(self, spec: Spec) -> Support:
        return self._inner.supports(spec)

    @contextmanager
    def _refusing(self, spec: Spec) -> Iterator[None]:
        try:
            yield
        except UnsupportedError as error:
            if self._inner.supports(spec):
                raise
            raise NotOffered(str(error)) from error

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        with self._refusing(spec):
            return self._inner.prepare(spec, threads)

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        with self._refusing(spec):
            return self._inner.restore_bytes(spec, data, threads)

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        with self._refusing(spec):
            return self._inner.pool(spec, limit, threads)


def usual_pair(backend: Backend) -> Pair:
    """The usual codecs, or the first that the backend offers in their place."""
    for keys, values in (USUAL, *_IN_ITS_PLACE):
        small = make_spec(keys=keys, values=values, kv_heads=2, query_heads=4, head_dim=64)
        if backend.supports(small):
            return keys, values
    return USUAL


@contextmanager
def usual_codecs(backend: Backend) -> Iterator[Offered]:
    """The backend as it is asked first; within, `usual()` gives codecs that it offers."""
    token = _pair.set(usual_pair(backend))
    try:
        yield Offered(backend)
    finally:
        _pair.reset(token)


def usual() -> Pair:
    """Codecs of keys and values for a case that is not about certain ones."""
    return _pair.get()
