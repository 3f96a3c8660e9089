"""The native cache behind the protocol: errors, bytes, threads, dumps, end."""

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_tools import NATIVE, add, filled, make_queries, make_spec, make_tokens

from kvassay import Cache, Identity
from kvassay.errors import (
    IdentityError,
    InputError,
    NonFiniteError,
    PageError,
    SpanError,
    StateError,
    TruncateError,
    UnsupportedError,
)
from kvassay.protocol import BYTE_PARTS, Support
from kvassay_backends.native.cache import LibraryCache

SPEC = make_spec(window=8, sinks=2)


def native(cache: Cache) -> LibraryCache:
    assert isinstance(cache, LibraryCache)
    return cache


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 65504.1, -1e30])
def test_values_beyond_fp16_are_named_and_change_nothing(value: float) -> None:
    cache = filled(SPEC, make_tokens(SPEC, 40))
    before = cache.dump()
    rows = make_tokens(SPEC, 20)
    rows[1, 17, 1, 5] = value
    with pytest.raises(NonFiniteError) as caught:
        cache.append(0, rows[0], rows[1])
    found = caught.value
    assert (found.layer, found.token, found.head, found.channel) == (0, 17, 1, 5)
    assert cache.dump() == before


def test_the_library_itself_refuses_such_values() -> None:
    """The same error from C, without the checks of Python in front."""
    cache = native(filled(SPEC, make_tokens(SPEC, 40)))
    rows = make_tokens(SPEC, 20)
    rows[0, 3, 1, 31] = np.nan
    keys, values = (cache._floats(np.ascontiguousarray(part), "rows") for part in rows)
    with pytest.raises(NonFiniteError, match="key is NaN") as caught:
        cache._call(cache._lib.kv_cache_append, cache._owned, 0, keys, values, 20)
    found = caught.value
    assert (found.layer, found.token, found.head, found.channel) == (0, 3, 1, 31)


def test_wrong_arguments_are_refused() -> None:
    cache = filled(SPEC, make_tokens(SPEC, 4))
    rows = make_tokens(SPEC, 2)
    layers: tuple[Any, ...] = (-1, 1, 2**70, True, "0")
    for layer in layers:
        with pytest.raises(InputError):
            cache.append(layer, rows[0], rows[1])
    lengths: tuple[Any, ...] = (-1, 5, 2**70, 1.0)
    for n in lengths:
        with pytest.raises(InputError):
            cache.truncate(n)
    counts: tuple[Any, ...] = (0, -1, 257, 2**40, 2**70, 1.0, True)
    for threads in counts:
        with pytest.raises(InputError, match="threads"):
            NATIVE.prepare(SPEC, threads)
    with pytest.raises(StateError):
        cache.attend(0, make_queries(SPEC, 5))
    with pytest.raises(StateError):
        NATIVE.prepare(SPEC).scores(0, make_queries(SPEC, 1)[0])


def test_unsupported_specs_are_refused_before_any_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NATIVE, "supports", lambda spec: Support(False, "layer 0: too new"))
    with pytest.raises(UnsupportedError, match="native scalar: layer 0: too new"):
        NATIVE.prepare(SPEC)


def test_parts_add_up_to_what_was_allocated() -> None:
    spec = make_spec(layers=3, window=8, sinks=2, span=50, layer_overrides={1: {"keys": "kivi:2"}})
    cache = native(NATIVE.prepare(spec, threads=2))
    rows = make_tokens(spec, 200)
    seen = set()
    for start in range(0, 200, 7):
        add(cache, rows[:, start : start + 7])
        assert tuple(cache.nbytes) == BYTE_PARTS
        assert sum(cache.nbytes.values()) == cache.allocated
        seen |= {part for part, size in cache.nbytes.items() if size}
    assert seen == set(BYTE_PARTS) - {"staging"}
    assert cache.counters.peak_bytes >= cache.allocated
    fork = native(cache.fork())
    assert sum(fork.nbytes.values()) == fork.allocated
    assert fork.nbytes["codes"] == cache.nbytes["codes"] > 0


def test_counters_are_evidence_and_start_anew_after_reset() -> None:
    cache = filled(SPEC, make_tokens(SPEC, 58))
    assert cache.counters.pages_encoded == 3
    assert cache.counters.variants_ran == ("scalar",)
    assert cache.counters.pages_scanned == 0
    cache.attend(0, make_queries(SPEC, 1)[0])
    assert cache.counters.pages_scanned == 3 * SPEC.kv_heads
    cache.reset()
    assert cache.counters.pages_encoded == 0
    assert not cache.counters.variants_ran


def test_a_closed_cache_raises_everywhere() -> None:
    cache = filled(SPEC, make_tokens(SPEC, 4))
    rows, query = make_tokens(SPEC, 1), make_queries(SPEC, 1)
    cache.close()
    cache.close()
    calls = (
        lambda: cache.append(0, rows[0], rows[1]),
        lambda: cache.attend(0, query),
        lambda: cache.scores(0, query[0]),
        lambda: cache.lengths,
        lambda: cache.length,
        lambda: cache.nbytes,
        lambda: cache.counters,
        lambda: cache.pages(0),
        lambda: cache.truncate(0),
        lambda: cache.fork(),
        lambda: cache.reset(),
        lambda: cache.dump(),
    )
    for call in calls:
        with pytest.raises(StateError, match="closed"):
            call()


def test_forks_outlive_their_parent_and_leave_it_alone() -> None:
    rows = make_tokens(SPEC, 120)
    parent = filled(SPEC, rows[:, :90])
    before = parent.dump()
    fork = parent.fork()
    add(fork, rows[:, 90:])
    assert parent.dump() == before
    assert fork.dump() == filled(SPEC, rows).dump()
    parent.close()
    assert fork.dump() == filled(SPEC, rows).dump()


def test_dropped_caches_are_destroyed() -> None:
    cache = filled(SPEC, make_tokens(SPEC, 40))
    pointer = weakref.ref(native(cache)._owned)
    del cache
    gc.collect()
    assert pointer() is None


def test_reset_equals_new() -> None:
    cache = filled(SPEC, make_tokens(SPEC, 100))
    cache.reset()
    assert cache.dump() == NATIVE.prepare(SPEC).dump()
    rows = make_tokens(SPEC, 70, seed=3)
    add(cache, rows)
    assert cache.dump() == filled(SPEC, rows).dump()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    rows, queries = make_tokens(SPEC, 700), make_queries(SPEC, 3)
    one, many = filled(SPEC, rows), filled(SPEC, rows, threads)
    assert one.dump() == many.dump()
    assert one.attend(0, queries).tobytes() == many.attend(0, queries).tobytes()
    assert one.scores(0, queries[0]).tobytes() == many.scores(0, queries[0]).tobytes()


def test_forks_on_different_threads() -> None:
    rows = make_tokens(SPEC, 260)
    parent = filled(SPEC, rows[:, :200])

    def grow(cache: Cache) -> bytes:
        for start in range(200, 260, 5):
            add(cache, rows[:, start : start + 5])
            cache.attend(0, make_queries(SPEC, 2))
        return cache.dump()

    with ThreadPoolExecutor(4) as pool:
        dumps = set(pool.map(grow, [parent.fork() for _ in range(8)]))
    assert dumps == {filled(SPEC, rows).dump()}


def test_any_strides_are_read_right() -> None:
    rows = make_tokens(SPEC, 60)
    expected = filled(SPEC, rows).dump()
    backwards = np.ascontiguousarray(rows[:, ::-1])[:, ::-1]
    transposed = np.asfortranarray(rows)
    frozen = rows.copy()
    frozen.flags.writeable = False
    for same in (backwards, transposed, frozen):
        assert filled(SPEC, same).dump() == expected


def test_dumps_come_back(tmp_path: Path) -> None:
    spec = make_spec(layers=2, window=8, sinks=2, layer_overrides={1: {"keys": "fp16"}})
    rows, queries = make_tokens(spec, 130), make_queries(spec, 2)
    cache = filled(spec, rows[:, :90])
    path = tmp_path / "cache.kvdm"
    data = cache.dump(path)
    sources: tuple[Any, ...] = (data, path, bytearray(data), memoryview(data))
    for source in sources:
        back = NATIVE.restore(spec, source)
        assert back.dump() == data
        add(back, rows[:, 90:])
        assert back.dump() == filled(spec, rows).dump()
        assert back.attend(1, queries).tobytes() == filled(spec, rows).attend(1, queries).tobytes()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"keys": "turbo:3"}, "keys"),
        ({"window": 9}, "window"),
        ({"rounds": 1}, "rounds"),
        ({"softmax_scale": 0.5}, "softmax_scale"),
        ({"identity": Identity(model="other")}, "identity.model"),
        ({"identity": Identity(model="one", tokens="x")}, "identity.tokens"),
        ({"identity": None}, "identity"),
    ],
)
def test_a_dump_of_another_cache_names_the_field(changes: dict[str, Any], field: str) -> None:
    fields = {"window": 8, "sinks": 2, "identity": Identity(model="one")}
    spec = make_spec(**fields)
    data = filled(spec, make_tokens(spec, 60)).dump()
    with pytest.raises(IdentityError, match=f"dump: {field} is ") as caught:
        NATIVE.restore(make_spec(**{**fields, **changes}), data)
    assert caught.value.field == field


def test_damaged_dumps_are_refused() -> None:
    data = filled(SPEC, make_tokens(SPEC, 30)).dump()
    assert json.loads(SPEC.identity_text)["window"] == 8
    for size in (0, 1, 31, 32, 64, len(data) // 2, len(data) - 64, len(data) - 1):
        with pytest.raises(PageError):
            NATIVE.restore(SPEC, data[:size])
    for at in range(0, len(data), 97):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(PageError):
            NATIVE.restore(SPEC, bytes(flipped))


def test_spans_refuse_what_was_retired() -> None:
    spec = make_spec(window=0, sinks=2, span=20)
    cache = filled(spec, make_tokens(spec, 120))
    queries = make_queries(spec, 60)
    cache.attend(0, queries)
    add(cache, make_tokens(spec, 1))
    with pytest.raises(SpanError):
        cache.attend(0, queries)
    cache.attend(0, queries[:1])
    with pytest.raises(SpanError):
        cache.truncate(82)


def test_a_refused_truncation_names_lengths_that_work() -> None:
    spec = make_spec(layers=2, sinks=2, window=8, layer_overrides={1: {"window": 24, "sinks": 4}})
    cache = filled(spec, make_tokens(spec, 80))
    before = cache.dump()
    with pytest.raises(TruncateError) as caught:
        cache.truncate(60)
    assert cache.dump() == before
    assert caught.value.allowed == (2, 76)
    for length in caught.value.allowed:
        cache.fork().truncate(length)
    for length in (3, 75):
        with pytest.raises(TruncateError):
            cache.fork().truncate(length)
