"""Measurements of what hands back what it holds: a `transformers.Cache`, a codec of arrays.

Its codec is not declared, so coarse codes are judged by models alone. What holds for any codec is
held here: each vector that comes back is nearer to its own original than to any other's, as many
tokens come back as went in, and the process gains no more memory than is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Final

import numpy as np

from kvassay.backend.returned import ReturnedCache, ReturningBackend
from kvassay.errors import KvassayError, UnsupportedError
from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Target

from ..common.process import call_fresh
from ..common.specs import MATH, ONE_LAYER
from ..memory.process import ENVIRONMENT, Probe, tolerance
from ..quality import metrics
from ..quality.fixture import SHAPES
from ..quality.fixture import one_layer as fixture
from ..quality.measured import Origin
from . import SUITE, own
from .measure import too_good

#: Query heads, KV heads, head dim.
_SHAPES: Final = ((4, 4, 64), (8, 2, 128))
#: Sizes of appends: a prompt and tokens one by one, groups that are not full, one long prompt.
_SCHEDULES: Final = {
    "a prompt of 64, then one by one": (64, *(1,) * 80),
    "uneven appends": (1, 33, 13, 28, 50, 7, 2, 31, 50, 50, 4),
    "a prompt of 200, then 63 and 41": (200, 63, 41),
}
#: Tokens forgotten, and appended behind, where a cache can be cropped.
_DROPPED: Final = 37
#: Tokens of a cache whose oldest part is compared with what went in, and that part.
_LONG: Final = (600, 150)
#: Layers, KV heads, head dim, and tokens of the two caches whose difference is counted.
_HELD: Final = (1, 4, 128)
_LENGTHS: Final = (1024, 2048)
_CHUNK: Final = 256
_TOKENS: Final = 400


def placed(backend: str, variant: str, name: str) -> list[Record]:
    """Vectors that came back in another's place, after appends, a crop and a reset."""
    origin, loaded = _of(backend, variant, name, MATH)
    records = []
    for number, heads in enumerate(_SHAPES):
        shape = _shape(*heads)
        what = f"{heads[0]} / {heads[1]} heads, d {heads[2]}"
        for title, sizes in _SCHEDULES.items():
            with closing(loaded.prepare_own(name, shape)) as cache:
                given = [_fill(cache, shape, sizes, number, layer) for layer in range(2)]
                for layer, pair in enumerate(given):
                    records.append(_placed(origin, cache, layer, pair, f"{title}, {what}"))
        records += _after(origin, loaded, name, shape, what)
    records.append(_copied(origin, loaded, name))
    return records


def _fill(
    cache: ReturnedCache, shape: Spec, sizes: Sequence[int], seed: int, layer: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Random keys and values, appended to a layer in parts of these sizes."""
    rng = np.random.default_rng((seed, layer))
    rows = (sum(sizes), shape.kv_heads, shape.head_dim)
    k, v = (rng.standard_normal(rows, np.float32) for _ in "kv")
    first = 0
    for size in sizes:
        part = slice(first, first + size)
        cache.append(layer, k[part], v[part])
        first += size
    return k, v


def _after(
    origin: Origin, loaded: ReturningBackend, name: str, shape: Spec, what: str
) -> Iterator[Record]:
    """Other tokens behind a crop, and after a reset, where these are offered."""
    with closing(loaded.prepare_own(name, shape)) as cache, suppress(UnsupportedError):
        k, v = _fill(cache, shape, (64, *(1,) * 76), 3)
        cache.truncate(_DROPPED)
        more = _fill(cache, shape, (1, 20, 1), 4)
        pair = tuple(np.concatenate([a[:-_DROPPED], b]) for a, b in zip((k, v), more, strict=True))
        yield _placed(origin, cache, 0, pair, f"after a crop of {_DROPPED} tokens, {what}")
    with closing(loaded.prepare_own(name, shape)) as cache, suppress(UnsupportedError):
        _fill(cache, shape, (140, 1, 1), 5)
        cache.reset()
        again = _fill(cache, shape, (33, 1, 1), 6)
        yield _placed(origin, cache, 0, again, f"after a reset, {what}")


def _placed(
    origin: Origin, cache: ReturnedCache, layer: int, given: Sequence[FloatArray], subject: str
) -> Record:
    """How many vectors of a layer are not where they belong; the first token of them is named."""
    wrong: dict[str, list[int]] = {}
    back = cache.returned(layer)
    for stream, found, right in zip(("keys", "values"), back, given, strict=True):
        if tokens := strangers(found, right):
            wrong[stream] = tokens
    count = sum(map(len, wrong.values()))
    if wrong:
        subject += f", first wrong at token {1 + min(map(min, wrong.values()))}"
    lengths = {"given": len(given[0]), "returned": len(back[0])}
    return origin.record(
        "misplaced", count, "vectors", sum(x.shape[0] * x.shape[1] for x in given),
        f"{subject}, layer {layer}", **lengths,
        streams={stream: len(tokens) for stream, tokens in wrong.items()},
    )  # fmt: skip


def strangers(found: FloatArray, right: FloatArray) -> list[int]:
    """The token of each vector of `found` that is nearest, by direction, to another vector of
    `right` than its own; tokens missing or too many count with each of their heads."""
    tokens, heads = right.shape[:2]
    common = min(len(found), tokens)
    odd = [token for token in range(common, max(len(found), tokens)) for _ in range(heads)]
    a, b = (x[:n].reshape(-1, x.shape[-1]) for x, n in ((found, common), (right, tokens)))
    likeness = a @ (b / np.linalg.norm(b, axis=-1, keepdims=True)).T
    best = np.where(np.isfinite(likeness).all(axis=1), likeness.argmax(axis=1), -1)
    off = np.flatnonzero(best != np.arange(len(a)))
    return [*(off // heads).tolist(), *odd]


def _copied(origin: Origin, loaded: ReturningBackend, name: str) -> Record:
    """Whether the oldest vectors of a long cache came back to the last bit: nothing was stored in
    fewer bits then."""
    tokens, oldest = _LONG
    shape = _shape(*_SHAPES[0])
    with closing(loaded.prepare_own(name, shape)) as cache:
        given = _fill(cache, shape, (64, *(8,) * ((tokens - 64) // 8)), 7)
        same = {
            stream: bool(np.array_equal(found[:oldest], right[:oldest]))
            for stream, found, right in zip(
                ("keys", "values"), cache.returned(0), given, strict=True
            )
        }
    return too_good(origin, same, loaded.formats[name].bits, f"oldest {oldest} of {tokens} tokens")


def held(backend: str, variant: str, name: str) -> list[Record]:
    """Bits a value that the process gains with each token, by the evidence that shows most."""
    origin, loaded = _of(backend, variant, name, MATH)
    arguments = {"backend": backend, "variant": variant, "name": name}
    found = call_fresh(f"{__name__}:held_bytes", arguments, **ENVIRONMENT)
    values = 2 * int(np.prod(_HELD))
    grown = {kind: found[1][kind] - found[0][kind] for kind in found[0]}
    grown["private"] -= tolerance("private", grown["private"])
    bits = {kind: 8 * b / (values * (_LENGTHS[1] - _LENGTHS[0])) for kind, b in grown.items()}
    claimed = loaded.formats[name].bits
    most = max(bits.values())
    return [
        origin.record(
            "stored_bits", most / claimed, "of what is claimed", values,
            f"{_LENGTHS[0]} to {_LENGTHS[1]} tokens", held=most, claimed=claimed, evidence=bits,
            at=8 * max(found[1].values()) / (values * _LENGTHS[1]),
        )
    ]  # fmt: skip


def held_bytes(backend: str, variant: str, name: str) -> list[dict[str, int]]:
    """What a fresh process holds for caches of two lengths, one after the other."""
    loaded = own(Target(backend, variant))
    layers, kv_heads, d = _HELD
    shape = Spec(layers=layers, query_heads=kv_heads, kv_heads=kv_heads, head_dim=d)
    _long(loaded, name, shape, _LENGTHS[1]).close()  # what the first use brings is there by now
    probe = Probe()
    found = []
    for tokens in _LENGTHS:
        with closing(_long(loaded, name, shape, tokens)):
            found.append(probe.held())
    return found


def _long(loaded: Any, name: str, shape: Spec, tokens: int) -> Any:
    cache = loaded.prepare_own(name, shape)
    for layer in range(shape.layers):
        _fill(cache, shape, (_CHUNK,) * (tokens // _CHUNK), 8, layer)
    cache.settle()
    return cache


def one_layer(backend: str, variant: str, name: str) -> list[Record]:
    """Output error against full precision on the fixture of the quality suite: a prompt, and the
    token whose query is asked."""
    origin, loaded = _of(backend, variant, name, ONE_LAYER)
    records = []
    for kind, (query_heads, kv_heads) in SHAPES.items():
        tensors = fixture(kind, _TOKENS)
        q = tensors.q[-1]
        shape = _shape(query_heads, kv_heads, q.shape[-1])
        exact = ReturnedCache(_Everything(), shape)
        exact.append(0, tensors.k, tensors.v)
        with closing(loaded.prepare_own(name, shape)) as cache:
            cache.append(0, tensors.k[:-1], tensors.v[:-1])
            cache.append(0, tensors.k[-1:], tensors.v[-1:])
            found = cache.attend(0, q)
        error = metrics.relative_rms(found, exact.attend(0, q))
        records.append(
            origin.record("output_error", error, "relative rms", found.size, kind, tokens=_TOKENS)
        )
    return records


class _Everything:
    """Gives one append back as it is."""

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        return k, v

    def drop_last(self, tokens: int) -> None:
        raise UnsupportedError("holds one append")

    def reset(self) -> None:
        raise UnsupportedError("holds one append")

    def settle(self) -> None:
        """Nothing is kept."""


def _shape(query_heads: int, kv_heads: int, d: int) -> Spec:
    return Spec(layers=2, query_heads=query_heads, kv_heads=kv_heads, head_dim=d)


def _of(backend: str, variant: str, name: str, stage: str) -> tuple[Origin, ReturningBackend]:
    target = Target(backend, variant)
    loaded = own(target)
    if not isinstance(loaded, ReturningBackend):
        raise KvassayError(f"{backend} does not hand back what it holds")
    return Origin(target, name, stage, SUITE, command=f"kvassay {SUITE}"), loaded
