"""Many queries at once, several sequences at once, and a million tokens: the reference's bits."""

import numpy as np
import pytest
from native_tools import add, make_queries, make_spec, make_tokens

import kvassay
from kvassay_backends.native import backend

STATES = {name: state.status for name, state in backend.variants().items() if state.runs}
RUN_HERE = list(STATES)
SPECS = {
    "turbo": make_spec(window=24, sinks=4),
    "span": make_spec(window=24, sinks=4, span=150),
    "qjl": make_spec(keys="turbo:2+qjl", key_centre="none", window=16, sinks=0),
    "kivi": make_spec(keys="kivi:2", values="kivi:2", key_centre="none", value_centre="none"),
}
TOKENS = 640
COUNTS = (1, 2, 7, 8, 9, 64, 511, 512)
#: Queries looked at alone; fewer early ones, which take the most others along, where it is slow.
ALONE = {
    "ready": (1, 3, 4, 5, 8, 63, 100, 255, 256, 300, 448, *range(490, 512)),
    "emulated": (5, 300, 448, *range(500, 512)),
}


@pytest.fixture(scope="module", params=SPECS)
def expected(request: pytest.FixtureRequest) -> tuple[kvassay.Spec, dict[int, bytes]]:
    """A spec, and what the reference gives for each count of queries."""
    spec = SPECS[request.param]
    with kvassay.load("reference").prepare(spec) as cache:
        add(cache, make_tokens(spec, TOKENS))
        return spec, {n: cache.attend(0, make_queries(spec, n)).tobytes() for n in COUNTS}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", RUN_HERE)
def test_many_queries_are_those_of_the_reference(
    variant: str, threads: int, expected: tuple[kvassay.Spec, dict[int, bytes]]
) -> None:
    spec, outputs = expected
    with kvassay.load("native", variant).prepare(spec, threads) as cache:
        add(cache, make_tokens(spec, TOKENS))
        for n, output in outputs.items():
            assert cache.attend(0, make_queries(spec, n)).tobytes() == output, n


@pytest.mark.parametrize("variant", RUN_HERE)
@pytest.mark.parametrize("name", SPECS)
def test_a_query_does_not_depend_on_the_batch(name: str, variant: str) -> None:
    """Query i of n is the first of the last n - i: alone, in other blocks, whatever is shared."""
    spec = SPECS[name]
    queries = make_queries(spec, 512)
    with kvassay.load("native", variant).prepare(spec) as cache:
        add(cache, make_tokens(spec, TOKENS))
        whole = cache.attend(0, queries)
        for i in ALONE[STATES[variant]]:
            assert np.array_equal(cache.attend(0, queries[i:])[0], whole[i]), i


@pytest.mark.parametrize("variant", RUN_HERE)
def test_sequences_side_by_side_do_not_meet(variant: str) -> None:
    """Six caches fed and read by turns hold what each would hold alone."""
    spec = SPECS["turbo"]
    native = kvassay.load("native", variant)
    rows = [make_tokens(spec, 150, seed) for seed in range(6)]
    caches = [native.prepare(spec, 1 + seed % 2) for seed in range(6)]
    query = make_queries(spec, 1)
    for first in range(0, 150, 15):
        for cache, tokens in zip(caches, rows, strict=True):
            add(cache, tokens[:, first : first + 15])
            cache.attend(0, query)
    for cache, tokens in zip(caches, rows, strict=True):
        with cache, native.prepare(spec) as alone:
            add(alone, tokens)
            assert cache.dump() == alone.dump()
            assert cache.attend(0, query).tobytes() == alone.attend(0, query).tobytes()


@pytest.mark.long
def test_a_million_tokens() -> None:
    """Beyond 2^20 tokens of one head: each variant as scalar, in other pieces; the reference."""
    spec = make_spec(
        kv_heads=1, query_heads=2, head_dim=64, page_tokens=64, window=128, sinks=4, seed=3
    )
    total, piece = (1 << 20) + 1000, 1 << 16
    states = []
    for variant in RUN_HERE:
        with kvassay.load("native", variant).prepare(spec, 2) as cache:
            step = piece if variant == "scalar" else piece - 777
            rng = np.random.default_rng(5)
            left = np.empty((2, 0, 1, 64), np.float32)
            for _ in range(0, total, piece):
                fresh = rng.standard_normal((piece, 2, 1, 64), np.float32).swapaxes(0, 1)
                left = np.concatenate([left, fresh], axis=1)
                while left.shape[1] >= step and cache.length + step <= total:
                    add(cache, left[:, :step])
                    left = left[:, step:]
            add(cache, left[:, : total - cache.length])
            assert cache.length == total
            queries = make_queries(spec, 5)
            outputs = [cache.attend(0, queries).tobytes(), cache.scores(0, queries[-1]).tobytes()]
            states.append((cache.dump(), outputs))
    assert all(state == states[0] for state in states)
    dump, outputs = states[0]
    with kvassay.load("reference").restore(spec, dump) as cache:
        assert cache.attend(0, queries).tobytes() == outputs[0]
        assert cache.scores(0, queries[-1]).tobytes() == outputs[1]
