"""Pools and prefixes: shared bytes are counted once, limits hold, equal hashes are not equality."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sharing import give, load, rows, spec_of, targets

from kvassay import Identity
from kvassay.backend.prefixes import PrefixStore
from kvassay.errors import (
    CacheMemoryError,
    IdentityError,
    InputError,
    StateError,
    UnsupportedError,
)

TARGETS = targets()
A = list(range(100))


def test_the_projects_own_backends_share() -> None:
    assert {name.partition(".")[0] for name in TARGETS} >= {"reference", "native"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_prefix_is_adopted_as_if_it_had_been_appended(target: str) -> None:
    backend, spec = load(target), spec_of()
    store = PrefixStore(spec)
    with backend.pool(spec) as pool:
        with give(pool.prepare(), A) as first:
            assert store.publish(A, first)
            before = first.dump()
        wanted = A[:70] + [200 + i for i in range(30)]
        match = store.match(wanted)
        assert match is not None
        assert (match.pages, match.tokens) == (4, 66)
        used = pool.nbytes["used"]
        with pool.prepare() as cache:
            for layer in range(spec.layers):
                rest = wanted[match.tokens :]
                match.adopt(cache, layer, rows(spec, rest, 0), rows(spec, rest, 1))
            with give(backend.prepare(spec), wanted) as fresh:
                assert cache.dump() == fresh.dump()
                q = np.ones((2, spec.query_heads, spec.head_dim), np.float32)
                assert cache.attend(1, q).tobytes() == fresh.attend(1, q).tobytes()
            page = len(cache.pages(0)[0])
            shared = 2 * 4 * page
            assert sum(cache.nbytes[part] for part in ("codes", "scales", "means")) > shared / 2
            assert match.donor.dump() == before
            unshared = sum(len(p) for layer in range(2) for p in cache.pages(layer)) - shared
            assert unshared == 2 * page
            with give(pool.prepare(), wanted):
                whole = pool.nbytes["used"]
            assert whole - pool.nbytes["used"] >= shared
        assert pool.nbytes["used"] == used
        store.close()


@pytest.mark.parametrize("target", TARGETS)
def test_equal_hashes_of_other_tokens_are_a_miss(target: str) -> None:
    backend, spec = load(target), spec_of()
    store = PrefixStore(spec, hashed=lambda _: 7)
    with give(backend.prepare(spec), A) as cache:
        store.publish(A, cache)
        assert store.match([*A[:17], 999, *A[18:]]) is None
        assert store.match([1, *A]) is None
        exact = store.match([*A, 5])
        assert exact is not None
        assert exact.pages == 5
    store.close()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"identity": Identity(model="two")}, "identity.model"),
        ({"identity": Identity(model="one", adapter="lora")}, "identity.adapter"),
        ({"seed": 1}, "seed"),
        ({"window": 9}, "window"),
        ({"keys": "turbo:4"}, "keys"),
    ],
)
def test_prefixes_of_another_identity_are_refused_by_field(
    target: str, changes: dict[str, object], field: str
) -> None:
    backend, spec, other = load(target), spec_of(), spec_of(**changes)
    with give(backend.prepare(other), A) as donor, backend.prepare(spec) as cache:
        with pytest.raises(IdentityError) as caught:
            PrefixStore(spec).publish(A, donor)
        assert caught.value.field == field
        with pytest.raises(IdentityError) as caught:
            cache.adopt(0, donor, 1, rows(spec, A, 0), rows(spec, A, 1))
        assert caught.value.field == field
        assert cache.lengths == (0, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_strangers_are_no_donors(target: str) -> None:
    backend, spec = load(target), spec_of()
    k, v = (rows(spec, A, stream) for stream in (0, 1))
    with give(backend.prepare(spec), A) as donor, backend.prepare(spec) as cache:
        for who in (donor, cache, "no cache"):
            with pytest.raises(InputError, match="donor"):
                cache.adopt(0, who, 1, k, v)  # type: ignore[arg-type]
        with donor.fork() as fork:
            fork.reset()
            for pages in (0, 6):
                with pytest.raises(StateError, match="pages"):
                    fork.adopt(0, donor, pages, k, v)
            with pytest.raises(StateError, match="window"):
                fork.adopt(0, donor, 1, k[:7], v[:7])
            fork.adopt(0, donor, 1, k, v)
            with pytest.raises(StateError, match="empty"):
                fork.adopt(0, donor, 1, k, v)


def test_a_store_that_is_full_forgets_the_oldest() -> None:
    backend, spec = load("native.scalar"), spec_of()
    store = PrefixStore(spec, most=2)
    with pytest.raises(InputError):
        PrefixStore(spec, most=0)
    with pytest.raises(UnsupportedError, match="sinks"):
        PrefixStore(spec_of(layer_overrides={1: {"sinks": 5}}))
    for start in (0, 50, 100):
        tokens = list(range(start, start + 60))
        with give(backend.prepare(spec), tokens) as cache:
            store.publish(tokens, cache)
        assert store.match(list(range(60))) is not None or start == 100
    assert len(store) == 2
    assert store.match(list(range(50, 110))) is None
    with give(backend.prepare(spec), A[:20]) as cache:
        assert not PrefixStore(spec).publish(A[:10], give(backend.prepare(spec), A[:10]))
        with pytest.raises(StateError, match="lengths"):
            store.publish(A, cache)
    store.close()


def test_a_span_that_retired_pages_publishes_nothing() -> None:
    backend, spec = load("reference.scalar"), spec_of(span=20)
    with give(backend.prepare(spec), A) as cache, pytest.raises(StateError, match="retired"):
        PrefixStore(spec).publish(A, cache)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pool_that_is_full_refuses_and_goes_on(target: str) -> None:
    backend, spec = load(target), spec_of()
    with backend.pool(spec) as free:
        caches = [give(free.prepare(), A) for _ in range(4)]
        need = sum(free.nbytes.values())
        for cache in caches:
            cache.close()
    with backend.pool(spec, need) as pool:
        held = []
        refused = None
        while refused is None:
            try:
                held.append(pool.prepare())
                give(held[-1], A)
            except CacheMemoryError as error:
                refused = error
                assert len(held) >= 3
                assert sum(pool.nbytes.values()) <= need
            assert len(held) < 12
        wanted = [give(backend.prepare(spec), A).dump()]
        for cache in held[:2]:
            assert cache.dump() == wanted[0]
            cache.close()
        again = give(pool.prepare(), A)
        assert again.dump() == wanted[0]
        assert sum(pool.nbytes.values()) <= need
        pool.close()
        pool.close()
        with pytest.raises(StateError, match="closed"):
            pool.prepare()
        assert again.dump() == wanted[0]
        for cache in (*held, again):
            cache.close()
    for limit in (0, -1, True, "1", 2.0):
        with pytest.raises(InputError, match="limit"):
            backend.pool(spec, limit)  # type: ignore[arg-type]
    with pytest.raises(CacheMemoryError):
        give(backend.pool(spec, 1).prepare(), A)


@pytest.mark.parametrize("target", TARGETS)
def test_threads_of_one_pool(target: str) -> None:
    backend, spec = load(target), spec_of()
    wanted = give(backend.prepare(spec), A).dump()
    start = threading.Barrier(2)
    with backend.pool(spec) as pool:
        empty = pool.nbytes["used"]

        def live(_: int) -> set[bytes]:
            start.wait()
            found = set()
            for _ in range(6):
                with pool.prepare() as cache:
                    for at in range(0, 100, 10):
                        give(cache, A[at : at + 10])
                    found.add(cache.dump())
            return found

        with ThreadPoolExecutor(2) as workers:
            assert set().union(*workers.map(live, range(2))) == {wanted}
        assert pool.nbytes["used"] == empty


def test_a_backend_without_sharing_says_so() -> None:
    from planted.wrapped import Unbroken

    backend, spec = Unbroken(), spec_of()
    assert not backend.shares
    with pytest.raises(UnsupportedError, match="pools"):
        backend.pool(spec)
    with backend.prepare(spec) as cache:
        k = rows(spec, A, 0)
        calls: list[Callable[[], None]] = [
            lambda: cache.mark(1),
            cache.rollback,
            cache.commit,
            lambda: cache.adopt(0, cache, 1, k, k),
        ]
        for call in calls:
            with pytest.raises(UnsupportedError, match="shares"):
                call()
