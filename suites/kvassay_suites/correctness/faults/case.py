"""What a fault case is, and what cases share: findings, small specs, tokens, patched dumps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.errors import KvassayError, UnsupportedError
from kvassay.page.layout import with_crc
from kvassay.protocol import Backend, Cache, FloatArray

from ...common.inputs import gaussian
from ...common.offered import Offered
from ...common.specs import make_spec
from ...oracle import read_dump

#: Codecs of keys and values, one pair a family.
PAIRS: Final = (
    ("turbo:4", "turbo:4"),
    ("turbo:3.5", "turbo:3"),
    ("turbo:3+qjl", "turbo:2.5"),
    ("kivi:2", "kivi:2"),
    ("fp16", "fp16"),
)
_DUMP_CRC: Final = 16


@dataclass(frozen=True)
class Subject:
    """The backend under test, by the names it is loaded by."""

    name: str
    variant: str

    @cached_property
    def backend(self) -> Backend:
        """The backend, loaded when a case first asks: some faults are committed by loading."""
        return Offered(kvassay.load(self.name, self.variant))


@dataclass
class Findings:
    """What a case asserted, and where the backend let it down."""

    asserted: int = 0
    failures: list[str] = field(default_factory=list)

    def holds(self, good: bool | np.bool_, what: str, found: object = None) -> bool:
        """Note whether `what`, a statement of what must be, is true."""
        self.asserted += 1
        if not good:
            self.failures.append(what + ("" if found is None else f"; found {found}"))
        return bool(good)

    def equal(self, found: object, expected: object, what: str) -> bool:
        """Both are equal; arrays and bytes are told by where they differ first."""
        if isinstance(found, (bytes, np.ndarray)) and isinstance(expected, (bytes, np.ndarray)):
            where = _difference(found, expected)
            return self.holds(where is None, f"{what} must be equal", where)
        return self.holds(found == expected, f"{what} must be {expected!r}", repr(found))

    def refused(
        self,
        call: Callable[[], object],
        errors: type[KvassayError] | tuple[type[KvassayError], ...],
        what: str,
    ) -> KvassayError | None:
        """The call raises one of `errors` with a message that says something; the error."""
        self.asserted += 1
        try:
            call()
        except errors as error:
            if len(str(error)) < 10:
                self.failures.append(f"{what}: refused by a message that says nothing: {error}")
            return error
        except Exception as error:
            self.failures.append(f"{what} must be refused by name; found {type(error).__name__}")
        else:
            self.failures.append(f"{what} must be refused by name; found accepted")
        return None

    def kept(
        self,
        cache: Cache,
        call: Callable[[], object],
        errors: type[KvassayError],
        what: str,
    ) -> KvassayError | None:
        """Refused like `refused`, and the cache is byte for byte what it was."""
        before = cache.dump()
        error = self.refused(call, errors, what)
        self.equal(cache.dump(), before, f"{what}: the cache before and after")
        return error

    def executes(self, backend: Backend, spec: kvassay.Spec) -> bool:
        """Whether the spec runs; if not, it must be refused with a reason before any data."""
        support = backend.supports(spec)
        if support:
            return True
        what = f"{spec.keys}/{spec.values} at head dim {spec.head_dim}, not supported,"
        self.holds(bool(support.reason), f"{what} must have a reason")
        self.refused(lambda: backend.prepare(spec), UnsupportedError, f"{what} when prepared")
        return False


def _difference(found: bytes | NDArray[Any], expected: bytes | NDArray[Any]) -> str | None:
    """Where two byte strings or arrays differ first, None if nowhere (bit by bit)."""
    if isinstance(found, bytes) and isinstance(expected, bytes):
        pair = zip(found, expected, strict=False)
        at = next((i for i, (a, b) in enumerate(pair) if a != b), None)
        if at is not None:
            return f"byte {at} of {len(expected)}"
        return None if len(found) == len(expected) else f"{len(found)} bytes, not {len(expected)}"
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {a.shape}, not {b.dtype} {b.shape}"
    if a.tobytes() == b.tobytes():
        return None
    wrong = np.argwhere(a != b)
    if not len(wrong):
        return "other bits of equal numbers"
    place = tuple(int(i) for i in wrong[0])
    return f"{a[place]} instead of {b[place]} at {list(place)}, {len(wrong)} of {a.size} differ"


Run = Callable[[Findings, Subject], None]


@dataclass(frozen=True)
class Case:
    """One fault as a case. `number` is its place in docs/faults.md, whose text is the docstring of
    `run`: what is done, and after "Expected:" what must come of it."""

    number: int
    name: str
    stage: str
    run: Run


CASES: Final[dict[int, Case]] = {}


def described(one: Case) -> tuple[str, str]:
    """What a case does, and what must come of it, each in one line."""
    done, _, expected = " ".join((one.run.__doc__ or "").split()).partition(" Expected: ")
    return done.removesuffix("."), expected.removesuffix(".")


def case(number: int, name: str, stage: str) -> Callable[[Run], Run]:
    """Register a function as the case of a fault."""

    def keep(run: Run) -> Run:
        assert number not in CASES, number
        CASES[number] = Case(number, name, stage, run)
        return run

    return keep


def small(**fields: Any) -> kvassay.Spec:
    """A small spec, turbo:4 unless said otherwise, pages of 16 tokens."""
    plain = {"kv_heads": 2, "query_heads": 4, "head_dim": 64, "page_tokens": 16}
    codecs = {"keys": "turbo:4", "values": "turbo:4"}
    return make_spec(**{**plain, **codecs, **fields})


def kv(spec: kvassay.Spec, tokens: int, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    """Gaussian keys and values."""
    shape = (tokens, spec.kv_heads, spec.head_dim)
    return gaussian(seed, *shape), gaussian(seed + 1000, *shape)


def queries(spec: kvassay.Spec, n: int, seed: int = 1) -> FloatArray:
    """Gaussian queries (n, query_heads, head_dim)."""
    return gaussian(seed + 2000, n, spec.query_heads, spec.head_dim)


def filled(
    backend: Backend, spec: kvassay.Spec, k: FloatArray, v: FloatArray, chunks: Iterable[int] = ()
) -> Cache:
    """A cache that was given these tokens on every layer, in chunks or at once."""
    cache = backend.prepare(spec)
    for layer in range(spec.layers):
        start = 0
        for n in chunks or (len(k),):
            cache.append(layer, k[start : start + n], v[start : start + n])
            start += n
    return cache


def seen(cache: Cache, q: FloatArray) -> dict[str, bytes]:
    """Everything a cache shows of layer 0: its bytes, scores, outputs of one and of many."""
    return {
        "dump": cache.dump(),
        "pages": b"".join(cache.pages(0)),
        "scores": cache.scores(0, q[-1]).tobytes(),
        "output of one query": cache.attend(0, q[-1]).tobytes(),
        f"outputs of {len(q)} queries": cache.attend(0, q).tobytes(),
    }


def same(find: Findings, found: Mapping[str, bytes], other: Mapping[str, bytes], who: str) -> None:
    """Everything seen of two caches is equal."""
    for name, bytes_ in found.items():
        find.equal(bytes_, other[name], f"{who}: {name}")


def patched(dump: bytes, edits: Mapping[int, bytes], page: int | None = 0) -> bytes:
    """The dump with bytes replaced and every checksum right again.

    Edits are by offset: in live page number `page` of layer 0, or with None in the file.
    """
    out = bytearray(dump)
    layer = read_dump(dump).layers[0]
    start = 0 if page is None else layer.page_offsets[page]
    for at, bytes_ in edits.items():
        out[start + at : start + at + len(bytes_)] = bytes_
    if page is not None:
        whole = slice(start, start + layer.page_bytes)
        out[whole] = with_crc(bytes(out[whole]))
    out[_DUMP_CRC : _DUMP_CRC + 4] = bytes(4)
    out[_DUMP_CRC : _DUMP_CRC + 4] = struct.pack("<I", zlib.crc32(out))
    return bytes(out)


def relative(found: NDArray[Any], exact: NDArray[Any]) -> float:
    """RMS error over the RMS of the exact numbers."""
    a, b = np.asarray(found, np.float64), np.asarray(exact, np.float64)
    return float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)))
