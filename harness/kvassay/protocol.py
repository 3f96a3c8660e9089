"""What a backend is: the classes every backend implements and every suite drives.

`Backend.prepare(spec)` gives a `Cache`, one sequence. Semantics of every operation are in
docs/lifecycle.md,
the numbers in docs/numeric-contract.md. `PROTOCOL_VERSION` changes when a method changes meaning.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Never

import numpy as np
from numpy.typing import NDArray

from .errors import StateError, UnsupportedError
from .page.dumpfile import read_source
from .spec import Spec
from .writing import write_whole

PROTOCOL_VERSION: Final = 1

FloatArray = NDArray[np.float32]
Status = Literal["ready", "emulated", "not-built", "unsupported-cpu", "missing-package", "broken"]
#: The keys of `Cache.nbytes`, in the order reports print them.
BYTE_PARTS: Final = (
    "codes",
    "scales",
    "means",
    "headers",
    "residual",
    "sinks",
    "scratch",
    "staging",
    "reserved",
)


@dataclass(frozen=True)
class Availability:
    """Whether a variant can run here, and why not."""

    status: Status
    reason: str = ""

    @property
    def runs(self) -> bool:
        """Ready, or ready under an emulator."""
        return self.status in ("ready", "emulated")


@dataclass(frozen=True)
class Support:
    """Whether a backend executes a spec, and why not."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Counters:
    """What a cache really did since it was prepared: evidence that a codec and a variant ran."""

    pages_encoded: int
    pages_scanned: int
    variants_ran: tuple[str, ...]
    peak_bytes: int


class Cache(ABC):
    """One sequence. Arrays are float32, C order, token-major; errors leave the cache unchanged.

    A cache is used by one thread at a time. It is a context manager that closes itself.
    """

    spec: Spec

    @abstractmethod
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        """Append tokens: k and v (tokens, kv_heads, head_dim) float32, keys after RoPE.

        Raises InputError, NonFiniteError, CacheMemoryError, StateError.
        """

    @abstractmethod
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        """Attention of q (query_heads, head_dim) or (n, query_heads, head_dim); same shape out.

        n queries are causal over the last n tokens. Raises InputError, NonFiniteError, StateError,
        SpanError.
        """

    @abstractmethod
    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        """Logits before softmax, scale included: (query_heads, tokens), -inf where not attended."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """Tokens appended, per layer (after truncation; retired tokens count)."""

    @property
    def length(self) -> int:
        """Tokens held by every layer."""
        return min(self.lengths)

    @property
    @abstractmethod
    def nbytes(self) -> dict[str, int]:
        """Bytes really held, by part (`BYTE_PARTS`); the sum is what was allocated."""

    @property
    @abstractmethod
    def counters(self) -> Counters:
        """What this cache did so far."""

    @abstractmethod
    def pages(self, layer: int) -> list[bytes]:
        """Live sealed pages in order, as copies in the documented format."""

    @abstractmethod
    def truncate(self, n: int) -> None:
        """Keep the first n tokens of every layer, or change nothing and raise TruncateError or
        SpanError."""

    @abstractmethod
    def fork(self) -> Cache:
        """A second cache with equal state, sharing sealed pages."""

    def mark(self, tokens: int) -> None:
        """Remember the lengths, and keep the fp16 data that a rollback needs if at most `tokens`
        more tokens come before it. Marks nest; truncate and reset forget them.

        Raises CacheMemoryError; UnsupportedError where the backend does not share, as do the next
        three.
        """
        raise _not_offered(self)

    def rollback(self, keep: int = 0) -> None:
        """Drop what came since the newest mark but the first `keep` tokens, and that mark.

        Raises StateError without a mark, TruncateError where a kept token exists only as codes.
        """
        raise _not_offered(self)

    def commit(self) -> None:
        """Keep what came since the newest mark and forget that mark; StateError without one."""
        raise _not_offered(self)

    def adopt(self, layer: int, donor: Cache, pages: int, k: FloatArray, v: FloatArray) -> None:
        """Fill an empty layer with the sinks and the first `pages` sealed pages of a donor, shared,
        and then k and v, at least `window` tokens: as if all of them had been appended.

        The donor is a fork, or of the same pool. Raises IdentityError where it is of another spec,
        StateError, and what `append` raises.
        """
        raise _not_offered(self)

    @abstractmethod
    def reset(self) -> None:
        """Back to empty, byte for byte."""

    @abstractmethod
    def close(self) -> None:
        """Release memory; later calls raise StateError. Closing twice is harmless."""

    @abstractmethod
    def dump_bytes(self) -> bytes:
        """The cache as one dump (docs/page-format.md)."""

    def dump(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """The dump; with `path` also written there atomically."""
        data = self.dump_bytes()
        if path is not None:
            write_whole("dump", path, [data])
        return data

    def __copy__(self) -> Cache:
        """A fork: two objects over the same memory would disagree at the next token."""
        return self.fork()

    def __deepcopy__(self, memo: dict[int, object]) -> Cache:
        """A fork."""
        return self.fork()

    def __reduce_ex__(self, protocol: object) -> Never:
        raise StateError(
            "a cache is not pickled: keep its dump_bytes() and give them to Backend.restore"
        )

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Pool(ABC):
    """Caches of one spec that share memory within a limit. A context manager that closes itself.

    Its caches may be used by different threads, each by one at a time, and outlive it.
    """

    spec: Spec

    @abstractmethod
    def prepare(self) -> Cache:
        """An empty cache; raises CacheMemoryError where the limit leaves no room."""

    @abstractmethod
    def restore_bytes(self, data: bytes) -> Cache:
        """A cache of this pool with the state of a dump; raises as `Backend.restore_bytes`."""

    @property
    @abstractmethod
    def nbytes(self) -> dict[str, int]:
        """Bytes held: `used` by caches, pages shared by several once, `reserved` and `headers`."""

    @abstractmethod
    def close(self) -> None:
        """Make no more caches; those that exist go on. Closing twice is harmless."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Backend(ABC):
    """Code that executes specs. One instance is one variant."""

    name: str
    variant: str
    #: Promises the numeric contract bit for bit; else `bound` says how far scores and outputs may
    # be off.
    exact: bool = True
    #: Relative RMS bound against the reference, for backends that are not exact.
    bound: float | None = None
    #: Digest of what was built, "" for pure Python.
    build_id: str = ""
    #: Offers pools, and caches that mark, roll back, commit and adopt.
    shares: bool = False

    @abstractmethod
    def supports(self, spec: Spec) -> Support:
        """Whether this backend executes the spec, before any data."""

    @abstractmethod
    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        """An empty cache. Raises UnsupportedError with the reason where `supports` says no."""

    @abstractmethod
    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        """A cache with the state of a dump of an equal spec. Raises IdentityError or PageError."""

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        """Caches that share memory, of at most `limit` bytes in all; UnsupportedError unless
        `shares`."""
        raise UnsupportedError(f"{self.name} {self.variant}: offers no pools")

    def restore(
        self, spec: Spec, source: bytes | str | os.PathLike[str], threads: int = 1
    ) -> Cache:
        """`restore_bytes` from bytes or from a path."""
        return self.restore_bytes(spec, read_source(source), threads)


class BackendProvider(ABC):
    """What an entry point of the group `kvassay.backends` names: a backend's variants."""

    name: str
    protocol: int = PROTOCOL_VERSION
    #: Its code is somebody's own and may end the process: ask it only in a worker.
    foreign: bool = False
    #: Judged where it is named only: without names, what runs other kernels again is left out, so
    #: that the answer takes minutes.
    on_request: bool = False

    @abstractmethod
    def variants(self) -> Mapping[str, Availability]:
        """Every variant this provider knows, best first, with its availability. Must be cheap and
        safe."""

    @abstractmethod
    def load(self, variant: str) -> Backend:
        """The backend of a variant that runs here."""


def require_open(closed: bool) -> None:
    """Raise StateError if a cache was closed."""
    if closed:
        raise StateError("the cache is closed; prepare or restore another one")


def _not_offered(cache: Cache) -> UnsupportedError:
    return UnsupportedError(
        f"{type(cache).__name__} offers no marks and adopts nothing; ask `Backend.shares` first"
    )
