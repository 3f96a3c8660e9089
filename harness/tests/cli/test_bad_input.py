"""Bad input to every backend: a typed error says what, where and what to do; nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_input_tools import HELD, PARAMETERS, SPEC, VARIANTS, filled, fingerprint, refuse, rows

import kvassay
from kvassay import Backend, Cache, KvassayError, Spec
from kvassay.errors import (
    InputError,
    NonFiniteError,
    RegistryError,
    SpanError,
    SpecError,
    StateError,
    TruncateError,
    UnknownBackendError,
    UnsupportedError,
)
from kvassay.protocol import FloatArray


def test_both_backends_are_tested() -> None:
    assert {name for name, _ in VARIANTS} >= {"reference", "native"}


@pytest.fixture(params=PARAMETERS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return kvassay.load(*request.param)


@pytest.fixture
def cache(backend: Backend) -> Iterator[Cache]:
    """A cache of HELD tokens, whose state and answers a test may not change."""
    with filled(backend, SPEC) as made:
        before = fingerprint(made)
        yield made
        assert fingerprint(made) == before


# --- shapes, dtypes, layouts ----------------------------------------------------------------------

K = rows(3, 2)
DTYPES: tuple[Any, ...] = (np.float64, np.float16, np.int32, np.bool_, np.complex64, object, ">f4")
SHAPES = (
    (3, 2, 31), (3, 2, 64), (3, 1, 32), (3, 4, 32), (2, 3, 32), (32, 2, 3),
    (3, 64), (2, 32), (96,), (), (1, 3, 2, 32), (0, 2, 31), (3, 0, 32),
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_dtypes(cache: Cache, dtype: Any) -> None:
    name = str(np.dtype(dtype))
    says = f"{name} expected float32 .astype(np.float32)"
    refuse(InputError, f"append: k: {says}", cache.append, 0, K.astype(dtype), K)
    refuse(InputError, f"append: v: {says}", cache.append, 1, K, K.astype(dtype))
    q = rows(2, 4).astype(dtype)
    refuse(InputError, f"attend: q: {says}", cache.attend, 0, q)
    refuse(InputError, f"attend: q: {says}", cache.attend, 1, q[0])
    refuse(InputError, f"scores: q: {says}", cache.scores, 0, q[0])


@pytest.mark.parametrize(
    "value", [None, 1.0, "k", K.tolist(), K.tobytes()], ids=lambda v: type(v).__name__
)
def test_no_array_at_all(cache: Cache, value: Any) -> None:
    name = type(value).__name__
    refuse(InputError, f"append: k: numpy array {name}", cache.append, 0, value, K)
    refuse(InputError, f"append: v: numpy array {name}", cache.append, 0, K, value)
    refuse(InputError, f"attend: q: numpy array {name}", cache.attend, 0, value)
    refuse(InputError, f"scores: q (4, 32) {name}", cache.scores, 0, value)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_other_shapes(cache: Cache, shape: tuple[int, ...]) -> None:
    bad = np.zeros(shape, np.float32)
    says = f"{shape} expected (tokens, 2, 32)"
    refuse(InputError, f"append: k: shape {says}", cache.append, 0, bad, K)
    refuse(InputError, f"append: v: shape {says}", cache.append, 0, K, bad)
    if shape != (3, 4, 32):
        refuse(InputError, "attend: q: (queries, 4, 32)", cache.attend, 0, bad)
    refuse(InputError, f"scores: q (4, 32) {shape}", cache.scores, 0, bad)


def test_queries_of_another_shape(cache: Cache) -> None:
    for shape in ((3, 32), (4, 31), (2, 4, 16), (2, 2, 32), (32,), (1, 1, 4, 32)):
        q = np.zeros(shape, np.float32)
        refuse(InputError, "attend: q: shape expected 4, 32", cache.attend, 0, q)
        refuse(InputError, "scores: q 4, 32", cache.scores, 0, q)
    none = np.zeros((0, 4, 32), np.float32)
    refuse(InputError, "attend: q no queries at least one", cache.attend, 0, none)


def test_keys_and_values_that_do_not_match(cache: Cache) -> None:
    for k, v in ((K, K[:2]), (K[:2], K), (K, K[:0])):
        says = f"append: k {len(k)} tokens v {len(v)} as many values as keys"
        refuse(InputError, says, cache.append, 0, k, v)


def test_any_layout_in_memory_gives_the_same_result(backend: Backend) -> None:
    k, v, q = rows(40, 2, 5), rows(40, 2, 6), rows(3, 4, 7)

    def read_only(x: FloatArray) -> FloatArray:
        out = x.copy()
        out.flags.writeable = False
        return out

    def unaligned(x: FloatArray) -> FloatArray:
        out = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
        out[...] = x
        return out

    layouts: tuple[Callable[[FloatArray], FloatArray], ...] = (
        np.ascontiguousarray,
        np.asfortranarray,
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
        lambda x: np.ascontiguousarray(x[:, ::-1, ::-1])[:, ::-1, ::-1],
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0),
        read_only,
        unaligned,
    )
    seen = set()
    for lay in layouts:
        with backend.prepare(SPEC) as cache:
            for layer in range(SPEC.layers):
                cache.append(layer, lay(k), lay(v))
            out = [cache.attend(layer, lay(q)).tobytes() for layer in range(SPEC.layers)]
            seen.add((cache.dump(), *out, cache.scores(0, lay(q)[0]).tobytes()))
    assert len(seen) == 1


def test_appending_nothing_is_no_error(cache: Cache) -> None:
    cache.append(0, K[:0], K[:0])


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 65504.008, -65519.0, 65520.0, 1e38])
def test_values_that_fp16_cannot_hold(cache: Cache, bad: float) -> None:
    places = ((0, 0, 0), (17, 1, 31), (2, 0, 16))
    for layer in range(SPEC.layers):
        for place in places:
            for name in ("k", "v"):
                given = {"k": rows(20, 2), "v": rows(20, 2)}
                given[name][place] = bad
                where = "token {} head {} channel {}".format(*place)
                says = f"append: {name}: layer {layer} {where} finite 65504"
                error = refuse(NonFiniteError, says, cache.append, layer, given["k"], given["v"])
                assert located(error) == (layer, *place)
        for place in ((0, 0, 0), (2, 3, 31)):
            q = rows(3, 4)
            q[place] = bad
            error = refuse(
                NonFiniteError,
                f"attend: q: layer {layer} finite",
                cache.attend,
                layer,
                q,
            )
            assert located(error) == (layer, *place)
        one = rows(1, 4)[0]
        one[3, 5] = bad
        error = refuse(NonFiniteError, "scores: q: head 3 channel 5", cache.scores, layer, one)
        assert located(error) == (layer, 0, 3, 5)


def located(error: KvassayError) -> tuple[int, int, int, int]:
    assert isinstance(error, NonFiniteError)
    return error.layer, error.token, error.head, error.channel


def test_the_edge_of_fp16_is_inside(backend: Backend) -> None:
    with backend.prepare(SPEC) as cache:
        edge = np.full((20, 2, 32), 65504, np.float32)
        cache.append(0, edge, -edge)
        assert np.isfinite(cache.attend(0, np.full((4, 32), 65504, np.float32))).all()


# --- layers, lengths, states ----------------------------------------------------------------------


@pytest.mark.parametrize("layer", [-1, 2, 2**70, True, 0.0, "0", None, np.float32(0)])
def test_layers_that_do_not_exist(cache: Cache, layer: Any) -> None:
    known = isinstance(layer, int) and not isinstance(layer, bool)
    says = f"layer: {layer} 0 .. 1" if known else f"layer: {layer!r} is not an integer"
    q = rows(1, 4)
    refuse(InputError, says, cache.append, layer, K, K)
    refuse(InputError, says, cache.attend, layer, q)
    refuse(InputError, says, cache.scores, layer, q[0])
    refuse(InputError, says, cache.pages, layer)


def test_numpy_integers_are_integers(backend: Backend) -> None:
    with filled(backend, SPEC) as cache:
        assert cache.pages(np.int64(0)) == cache.pages(0)  # type: ignore[arg-type]
        cache.truncate(np.int32(HELD - 1))  # type: ignore[arg-type]
        assert cache.length == HELD - 1


@pytest.mark.parametrize("n", [-1, HELD + 1, 2**70, 3.0, "3", None, True])
def test_lengths_that_cannot_be_truncated_to(cache: Cache, n: Any) -> None:
    known = isinstance(n, int) and not isinstance(n, bool)
    says = f"truncate: {n} 0 .. {HELD}" if known else f"truncate: {n!r} is not an integer"
    refuse(InputError, says, cache.truncate, n)


def test_truncations_that_need_lost_tokens(cache: Cache) -> None:
    for n in range(3, HELD - 1):
        if n in (18, 34) or n >= 39:
            continue  # ends of pages, and lengths at which as many pages are sealed
        error = refuse(TruncateError, f"{n} nearest allowed", cache.truncate, n)
        assert isinstance(error, TruncateError)
        assert error.allowed
        assert str(error.allowed[0]) in str(error)


def test_more_queries_than_tokens(cache: Cache) -> None:
    q = rows(HELD + 1, 4)
    says = f"attend: {HELD + 1} queries layer 1 holds {HELD} tokens at most"
    refuse(StateError, says, cache.attend, 1, q)
    assert cache.attend(1, q[1:]).shape == (HELD, 4, 32)


def test_empty_caches_and_layers_cannot_be_attended(backend: Backend) -> None:
    with backend.prepare(SPEC) as cache:
        before = cache.dump()
        q = rows(1, 4)
        for layer in range(SPEC.layers):
            says = f"layer {layer} holds no tokens append first"
            refuse(StateError, f"attend: {says}", cache.attend, layer, q)
            refuse(StateError, f"scores: {says}", cache.scores, layer, q[0])
        refuse(InputError, "truncate: 1 0 .. 0", cache.truncate, 1)
        assert cache.dump() == before
        cache.append(0, K, K)
        refuse(StateError, "layer 1 holds no tokens", cache.attend, 1, q)
        refuse(InputError, "truncate: 1 0 .. 0", cache.truncate, 1)


def test_retired_tokens_are_not_skipped(backend: Backend) -> None:
    spec = Spec(1, 2, 4, 32, keys="turbo:2", values="turbo:2", page_tokens=16, span=20, sinks=2)
    with filled(backend, spec, 120) as cache:
        cache.append(0, K[:1], K[:1])
        before = cache.dump()
        refuse(SpanError, "retired fewer", cache.attend, 0, rows(60, 4))
        refuse(SpanError, "82", cache.truncate, 82)
        assert cache.dump() == before


def test_closed_caches(backend: Backend, tmp_path: Path) -> None:
    cache = filled(backend, SPEC)
    cache.close()
    cache.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: cache.append(0, K, K),
        lambda: cache.attend(0, rows(1, 4)),
        lambda: cache.scores(0, rows(1, 4)[0]),
        lambda: cache.lengths,
        lambda: cache.length,
        lambda: cache.nbytes,
        lambda: cache.counters,
        lambda: cache.pages(0),
        lambda: cache.truncate(0),
        lambda: cache.fork(),
        lambda: cache.reset(),
        lambda: cache.dump(),
        lambda: cache.dump(tmp_path / "never"),
    )
    for call in calls:
        refuse(StateError, "cache closed prepare or restore", call)
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("threads", [0, -1, 1.0, True, "2", None])
def test_threads_that_are_no_number(backend: Backend, threads: Any) -> None:
    data = filled(backend, SPEC).dump()
    refuse(InputError, f"threads: {threads}", backend.prepare, SPEC, threads)
    refuse(InputError, f"threads: {threads}", backend.restore, SPEC, data, threads)


# --- names and specs ------------------------------------------------------------------------------

SHAPE: dict[str, Any] = {"layers": 2, "kv_heads": 2, "query_heads": 4, "head_dim": 64}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"head_dim": 72}, "head_dim: 72 multiple of 16 pad"),
        ({"head_dim": 0}, "head_dim: 0 outside 16 .. 576"),
        ({"head_dim": 592}, "head_dim: 592 outside"),
        ({"head_dim": 64.0}, "head_dim: 64.0 not an integer"),
        ({"head_dim": True}, "head_dim: True not an integer"),
        ({"head_dim": "64"}, "head_dim: '64' not an integer"),
        ({"query_heads": 5}, "query_heads: 5 multiple of kv_heads 2"),
        ({"keys": "turbo:3.6"}, "keys: 'turbo:3.6' did you mean 'turbo:3.5'?"),
        ({"keys": "trubo:4"}, "keys: 'trubo:4' did you mean 'turbo:4'?"),
        ({"values": "turbo:3+qjl"}, "values: 'turbo:3+qjl' for values did you mean 'turbo:3'?"),
        ({"values": "q"}, "values: no codec 'q' known: fp16, kivi:2"),
        ({"keys": None}, "keys: no codec None"),
        ({"keys": "turbo:4", "key_centre": "pages"}, "key_centre: 'pages' did you mean 'page'?"),
        ({"key_centre": "page"}, "key_centre: 'page' no meaning for fp16 use 'none'"),
        ({"scale": "u16"}, "scale: 'u16' u8, u8log, fp16"),
        ({"page_tokens": 24}, "page_tokens: 24 multiple of 16"),
        ({"window": -1}, "window: -1 outside"),
        ({"span": 0}, "span: 0 outside 1"),
        ({"rounds": 3}, "rounds: 3 1 or 2"),
        ({"seed": 2**64}, "seed: outside"),
        ({"softmax_scale": float("nan")}, "softmax_scale: nan"),
        ({"rounds": True}, "rounds: True 1 or 2"),
        ({"identity": 3}, "identity: 3 neither Identity nor a mapping"),
        ({"identity": {"model": 3}}, "identity.model: 3 not text"),
        ({"rope": {"base": "x", "dims": 64}}, "rope.base: 'x' not a number"),
        ({"layer_overrides": [1]}, "layer_overrides: [1] not a mapping"),
        ({"layer_overrides": {2: {}}}, "layer_overrides: layer 2"),
        (
            {"layer_overrides": {0: {"key": "fp16"}}},
            "layer_overrides[0]: 'key' did you mean 'keys'?",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_specs_that_contradict_themselves(fields: dict[str, Any], says: str) -> None:
    refuse(SpecError, says, lambda: Spec(**{**SHAPE, **fields}))


def test_integers_of_numpy_make_the_same_spec() -> None:
    shape: dict[str, Any] = {name: np.int64(value) for name, value in SHAPE.items()}
    policy: dict[str, Any] = {"window": np.int32(3), "layer_overrides": {1: {"sinks": np.int8(4)}}}
    plain = Spec(**SHAPE, window=3, layer_overrides={1: {"sinks": 4}})
    assert Spec(**shape, **policy).identity_text == plain.identity_text


def test_what_is_no_spec(backend: Backend) -> None:
    refuse(InputError, "spec: kvassay.Spec got str", backend.supports, "turbo")
    refuse(InputError, "spec: kvassay.Spec got str", backend.prepare, "turbo")
    refuse(InputError, "spec: kvassay.Spec got str", backend.restore, "turbo", b"")


def test_unknown_fields_and_presets() -> None:
    refuse(
        SpecError, "'windw' did you mean 'window'?", lambda: Spec.from_dict({**SHAPE, "windw": 1})
    )
    refuse(
        SpecError, "preset 'trubo' did you mean 'turbo'?", lambda: kvassay.preset("trubo", **SHAPE)
    )
    refuse(
        SpecError,
        "'head_dims' did you mean 'head_dim'?",
        lambda: kvassay.preset("turbo", head_dims=1),
    )


@pytest.mark.parametrize(
    ("name", "variant", "kind", "says"),
    [
        ("nativ", None, UnknownBackendError, "backend 'nativ' did you mean 'native'? module:Class"),
        ("xyz", None, UnknownBackendError, "backend 'xyz' known: native, reference"),
        ("native", "scalr", UnknownBackendError, "variant 'scalr' did you mean 'scalar'?"),
        ("no_such_module:Class", None, UnknownBackendError, "no_such_module:Class No module named"),
        ("planted.wrapped:Missing", None, UnknownBackendError, "Missing no attribute"),
        ("json:loads", None, RegistryError, "json:loads neither Backend class BackendProvider"),
        (":", None, UnknownBackendError, "cannot import backend ':'"),
    ],
)  # fmt: skip
def test_unknown_backends(name: str, variant: str | None, kind: Any, says: str) -> None:
    refuse(kind, says, lambda: kvassay.load(name, variant))


def test_every_head_dim_is_executed_or_refused_before_any_data(backend: Backend) -> None:
    for d in range(16, 577, 16):
        spec = Spec(1, 1, 1, d, keys="turbo:4", values="turbo:4", page_tokens=16)
        support = backend.supports(spec)
        if support:
            with backend.prepare(spec) as cache:
                cache.append(0, np.ones((17, 1, d), np.float32), np.ones((17, 1, d), np.float32))
                assert np.isfinite(cache.attend(0, np.ones((1, d), np.float32))).all()
        else:
            assert support.reason
            with pytest.raises(UnsupportedError, match=re.escape(support.reason)):
                backend.prepare(spec)
