"""The index on its reference scorer: life cycle, results and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors import F32, filled, gaussian, state

from kvassay.errors import InputError, StateError, UnknownBackendError
from kvassay.retrieval import Index, VectorCode

#: D / (1 - D): error of the unbiased scale with codes by thresholds alone.
ERROR = {2: 0.1331, 3: 0.0358, 4: 0.00959}


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("dim", [64, 128, 200, 384, 768, 1536])
def test_scores_have_the_error_of_their_rate(dim: int, bits: int) -> None:
    x, q = gaussian(1, 400, dim), gaussian(2, 30, dim)
    index = Index(dim, bits, backend="reference")
    index.add(x)
    scores, ids = index.search(q, 400)
    true = np.take_along_axis(q.astype(np.float64) @ x.T, ids, 1)
    sizes = np.linalg.norm(q, axis=1)[:, np.newaxis] * np.linalg.norm(x, axis=1)[ids]
    error = np.mean(((scores - true) / sizes) ** 2) * index.code.channels
    assert 0.7 * ERROR[bits] < error < 1.08 * ERROR[bits]  # less: codes are chosen by direction


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("kind", [None, "5-95", "outer"])
def test_a_vector_scores_its_own_square(bits: int, kind: str | None) -> None:
    x = gaussian(3, 50, 256) * np.linspace(0.1, 10, 50, dtype=np.float32)[:, np.newaxis]
    index = Index(256, bits, backend="reference")
    if kind:
        index.calibrate(gaussian(4, 4000, 256), kind)
    index.add(x)
    scores, ids = index.search(x, 50)
    own = scores[ids == np.arange(50)[:, np.newaxis]]
    assert own == pytest.approx((x.astype(np.float64) ** 2).sum(axis=1), rel=0.01)


def test_calibration_mends_what_the_rotation_leaves() -> None:
    """A mean that all vectors share is a shift of each rotated channel."""
    offset = 8 * gaussian(5, 1, 128)
    x, q = gaussian(6, 2000, 128) + offset, gaussian(7, 50, 128)
    best = np.argsort(-(q @ x.T), axis=1)[:, :10]
    found = {}
    for kind in (None, "outer", "mean"):
        index = Index(128, 3, backend="reference")
        if kind:
            index.calibrate(x, kind)
        index.add(x)
        ids = index.search(q, 10)[1]
        found[kind] = np.mean([len(set(a) & set(b)) for a, b in zip(ids, best, strict=True)]) / 10
    assert found["outer"] > found[None] + 0.2
    assert found["mean"] > found[None] + 0.2


@pytest.mark.parametrize("metric", ["ip", "cosine"])
def test_behind_a_mean_scores_are_whole_scores(metric: str) -> None:
    """What all vectors have in common is in them, and only their differences carry an error."""
    x, q = gaussian(6, 2000, 128) + 8 * gaussian(5, 1, 128), gaussian(7, 20, 128)
    index = Index(128, 4, backend="reference", metric=metric)
    index.calibrate(x, "mean")
    index.add(x)
    scores, ids = index.search(q, 2000)
    if metric == "cosine":
        x, q = (y / np.linalg.norm(y, axis=1, keepdims=True) for y in (x, q))
    true = np.take_along_axis(q.astype(np.float64) @ x.T, ids, 1)
    size = (
        np.linalg.norm(x - x.mean(axis=0), axis=1)[ids] * np.linalg.norm(q, axis=1)[:, np.newaxis]
    )
    assert np.mean(((scores - true) / size) ** 2) * 128 < 1.1 * ERROR[4]


def test_vectors_that_are_the_mean_score_what_it_scores() -> None:
    spread = gaussian(1, 512, 32)
    x = np.concatenate([spread, -spread])
    index = Index(32, 3, backend="reference")
    index.calibrate(x, "mean")
    index.add(np.zeros((3, 32), np.float32))
    scores, ids = index.search(gaussian(2, 4, 32), 3)
    assert np.abs(scores).max() < 1e-4
    assert (ids == np.arange(3)).all()


@pytest.mark.parametrize("metric", ["ip", "cosine"])
def test_rerank_gives_exact_scores(metric: str) -> None:
    x, q = gaussian(1, 300, 48), gaussian(2, 20, 48)
    index = Index(48, 2, keep_vectors=True, backend="reference", metric=metric)
    index.add(x)
    scores, ids = index.search(q, 5, rerank=300)
    true = q.astype(np.float64) @ x.T
    if metric == "cosine":
        true /= np.linalg.norm(q, axis=1)[:, np.newaxis] * np.linalg.norm(x, axis=1)
    assert (ids == np.argsort(-true, axis=1)[:, :5]).all()
    assert scores == pytest.approx(np.sort(true, axis=1)[:, :-6:-1], rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 33])
def test_small_indexes(n: int) -> None:
    x = gaussian(1, n, 32)
    index = filled(n, 32, keep_vectors=True)
    for rerank in (0, 100):
        scores, ids = index.search(x, 100, rerank=rerank)
        assert ids.shape == scores.shape == (n, n)
        assert (np.sort(ids, axis=1) == np.arange(n)).all()
        assert (np.diff(scores, axis=1) <= 0).all()
        assert (ids[:, 0] == np.arange(n)).all()


def test_an_empty_index_and_an_empty_mask_find_nothing() -> None:
    empty = Index(8, 4, backend="reference")
    assert empty.search(gaussian(1, 3, 8), 5)[1].shape == (3, 0)
    index = filled(20, 8)
    none = np.zeros(20, bool)
    assert index.search(gaussian(1, 3, 8), 5, mask=none)[1].shape == (3, 0)
    assert index.search(np.zeros((0, 8), np.float32), 5)[1].shape == (0, 5)


def test_a_mask_hides_what_it_does_not_allow() -> None:
    index = filled(100, 16)
    q, mask = gaussian(2, 9, 16), np.arange(100) % 3 == 0
    everything = index.search(q, 100)
    scores, ids = index.search(q, 10, mask=mask)
    for row in range(9):
        allowed = mask[everything[1][row]]
        assert (ids[row] == everything[1][row][allowed][:10]).all()
        assert (scores[row] == everything[0][row][allowed][:10]).all()
    assert index.search(q, 50, mask=mask)[1].shape == (9, 34)


def test_equal_vectors_come_in_row_order() -> None:
    one = gaussian(1, 1, 16)
    index = Index(16, 4, keep_vectors=True, backend="reference")
    index.add(np.repeat(one, 40, axis=0), ids=np.arange(40)[::-1] + 100)
    for rerank in (0, 20):
        assert index.search(one, 20, rerank=rerank)[1][0].tolist() == list(range(139, 119, -1))


@pytest.mark.parametrize("metric", ["ip", "cosine"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_zero_vector_scores_zero(metric: str, calibrated: bool) -> None:
    index = Index(16, 4, keep_vectors=True, backend="reference", metric=metric)
    if calibrated:
        index.calibrate(gaussian(3, 4000, 16) + 1)
    index.add(np.concatenate([np.zeros((1, 16), np.float32), gaussian(1, 20, 16)]))
    for rerank in (0, 21):
        scores, ids = index.search(gaussian(2, 5, 16), 21, rerank=rerank)
        assert (scores[ids == 0] == 0).all()
        assert not index.search(np.zeros((1, 16), np.float32), 21, rerank=rerank)[0].any()


def test_sorted_input_changes_nothing() -> None:
    x = gaussian(1, 200, 32)
    order = np.argsort(x[:, 0])
    plain, ordered = Index(32, 3, backend="reference"), Index(32, 3, backend="reference")
    plain.add(x)
    ordered.add(x[order], ids=order)
    q = gaussian(2, 10, 32)
    assert (plain.search(q, 20)[1] == ordered.search(q, 20)[1]).all()


@pytest.mark.parametrize("factor", [2.0**-39, 1e-6, 1e6, 2.0**36])
def test_queries_far_from_the_data(factor: float) -> None:
    index, q = filled(100, 32, keep_vectors=True), gaussian(2, 10, 32)
    near = index.search(q, 100)
    far = index.search(q * np.float32(factor), 100)
    assert np.isfinite(far[0]).all()
    assert far[0] == pytest.approx(near[0] * factor, rel=0.02, abs=0.02 * factor)
    assert (index.search(q * np.float32(factor), 5, rerank=100)[1][:, 0]
            == index.search(q, 5, rerank=100)[1][:, 0]).all()  # fmt: skip


@pytest.mark.parametrize("factor", [2.0**-38, 37.0, 2.0**36])
def test_codes_do_not_depend_on_the_length(factor: float) -> None:
    x = gaussian(1, 50, 32)
    one, other = Index(32, 4, backend="reference"), Index(32, 4, backend="reference")
    one.add(x)
    other.add(x * np.float32(factor))
    ratio = other._store.stored.scales[:50] / one._store.stored.scales[:50]
    assert ratio == pytest.approx(factor, rel=1e-5)
    assert (one._store.stored.tiles == other._store.stored.tiles).mean() > 0.95


def bad(value: float) -> F32:
    x = gaussian(1, 5, 24)
    x[3, 7] = value
    return x


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e13, -3e38])
@pytest.mark.parametrize("call", ["add", "search", "calibrate"])
def test_what_is_no_number_is_refused_where_it_is(value: float, call: str) -> None:
    index = filled() if call != "calibrate" else Index(24, 4, backend="reference")
    before = state(index)
    arguments: tuple[Any, ...] = (bad(value), 3) if call == "search" else (bad(value),)
    with pytest.raises(InputError, match="row 3, channel 7"):
        getattr(index, call)(*arguments)
    assert state(index) == before


def test_vectors_too_small_to_square_are_refused() -> None:
    with pytest.raises(InputError, match=r"row 0.*scale the data"):
        filled().add(np.full((1, 24), 1e-13, np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: i.add(np.zeros((2, 24))), "float64"),
        (lambda i: i.add(np.zeros((2, 23), np.float32)), r"\(n, 24\)"),
        (lambda i: i.add(np.zeros(24, np.float32)), r"\(n, 24\)"),
        (lambda i: i.add([[1.0] * 24]), "list"),
        (lambda i: i.add(gaussian(1, 2, 24), ids=[7]), "1 ids for 2 vectors"),
        (lambda i: i.add(gaussian(1, 2, 24), ids=[50, 50]), "50 occurs more than once"),
        (lambda i: i.add(gaussian(1, 2, 24), ids=[50, 39]), "39 is in the index"),
        (lambda i: i.add(gaussian(1, 2, 24), ids=[50, -1]), "0 .. 2"),
        (lambda i: i.add(gaussian(1, 2, 24), ids=[0.5, 1.5]), "whole numbers"),
        (lambda i: i.remove([3, 40]), "40 is not in the index"),
        (lambda i: i.remove([3, 3]), "3 occurs more than once"),
        (lambda i: i.search(gaussian(1, 2, 24), 0), "k: 0"),
        (lambda i: i.search(gaussian(1, 2, 24), True), "k: True"),
        (lambda i: i.search(gaussian(1, 2, 24), 9, rerank=8), "less than k 9"),
        (lambda i: i.search(gaussian(1, 2, 24), 9, mask=np.ones(39, bool)), r"\(40,\)"),
        (lambda i: i.search(gaussian(1, 2, 24), 9, mask=np.ones(40)), "float64"),
    ],
)
def test_bad_arguments_are_named_and_change_nothing(call: Any, message: str) -> None:
    index = filled()
    before = state(index)
    with pytest.raises(InputError, match=message):
        call(index)
    assert state(index) == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 0}, "dim: 0"),
        ({"dim": 8193}, "dim: 8193"),
        ({"dim": 2.0}, "dim: 2.0"),
        ({"bits": 5}, "bits: 5"),
        ({"seed": -1}, "seed: -1"),
        ({"metric": "l2"}, "metric: 'l2'"),
    ],
)
def test_an_index_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Index(**{"dim": 8, "bits": 4, "backend": "reference", **fields})


def test_unknown_scorers_are_refused_by_name() -> None:
    with pytest.raises(UnknownBackendError, match="did you mean 'reference'"):
        Index(8, 4, backend="referense")
    with pytest.raises(UnknownBackendError, match="no variant 'avx9'"):
        Index(8, 4, backend="reference", variant="avx9")


def test_rerank_needs_vectors() -> None:
    with pytest.raises(StateError, match="keep_vectors=True"):
        filled().search(gaussian(1, 1, 24), 3, rerank=10)


def test_calibration_is_once_and_first() -> None:
    with pytest.raises(StateError, match="holds 40 vectors"):
        filled().calibrate(gaussian(1, 4000, 24))
    index = Index(24, 4, backend="reference")
    index.calibrate(gaussian(1, 4000, 24))
    with pytest.raises(StateError, match="calibrated already"):
        index.calibrate(gaussian(1, 4000, 24))


@pytest.mark.parametrize(
    ("sample", "kind", "message"),
    [
        (gaussian(1, 255, 24), "5-95", "255 vectors .* takes 256"),
        (gaussian(1, 2000, 24), "outer", "2000 vectors .* takes 25"),
        (np.zeros((4000, 24), np.float32), "outer", "0 vectors that are not zero"),
        (np.repeat(gaussian(1, 1, 24), 4000, axis=0), "outer", "degenerate"),
        (np.repeat(gaussian(1, 1, 24), 4000, axis=0), "mean", "degenerate"),
        (gaussian(1, 255, 24), "mean", "takes 256"),
        (gaussian(1, 4000, 24), "1-99", "'1-99' is not one of"),
    ],
)
def test_poor_samples_are_refused(sample: F32, kind: str, message: str) -> None:
    index = Index(24, 4, backend="reference")
    with pytest.raises(InputError, match=message):
        index.calibrate(sample, kind)
    assert index.calibration is None


def test_what_a_calibration_cannot_express_is_refused() -> None:
    """All its codes point the other way: no positive scale makes them the vector."""
    index = Index(32, 2, backend="reference")
    offset = 100 * gaussian(5, 1, 32)
    index.calibrate(gaussian(1, 4000, 32) + offset)
    before = state(index)
    with pytest.raises(InputError, match="row 1 points away"):
        index.add(np.concatenate([offset, -offset]))
    assert state(index) == before


def test_ids_are_never_used_twice_by_themselves() -> None:
    index = filled(10)
    index.remove([9, 0])
    assert index.add(gaussian(2, 2, 24)).tolist() == [10, 11]
    assert index.add(gaussian(2, 1, 24), ids=[0]).tolist() == [0]
    assert index.ids.tolist() == [*range(1, 9), 10, 11, 0]


def test_bytes_held_are_codes_and_one_scale() -> None:
    index = filled(64, 128, bits=4)
    assert sum(index.nbytes.values()) == 64 * (128 * 4 // 8 + 4)
    index = filled(64, 200, bits=2, keep_vectors=True)
    assert index.nbytes["codes"] == 64 * 208 * 2 // 8
    assert index.nbytes["vectors"] == 64 * 200 * 4


@pytest.mark.parametrize("dim", [1, 15, 512, 513, 576, 592, 1000, 8192])
def test_every_dimension_has_equal_slabs_of_sixteens(dim: int) -> None:
    code = VectorCode(dim, 4)
    assert code.width % 16 == 0
    assert code.width <= 512
    assert dim <= code.channels < dim + 16 * code.slabs
    assert code.width % code.block == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_state_is_that_of_the_survivors(data: st.DataObject) -> None:
    """Whatever was added and removed, in whatever pieces: as if the survivors had come at once."""
    shapes: st.SearchStrategy[tuple[int, int]] = st.sampled_from([(3, 4), (40, 3), (530, 2)])
    dim, bits = data.draw(shapes)
    index = Index(dim, bits, keep_vectors=True, backend="reference")
    pool = gaussian(9, 400, dim)
    held: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        removing: bool = data.draw(st.booleans())
        if held and removing:
            gone: list[int] = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True))
            index.remove(gone)
            for one in gone:
                del held[one]
        else:
            size, at = data.draw(st.integers(0, 70)), data.draw(st.integers(0, 300))
            ids = index.add(pool[at : at + size])
            held.update(zip(ids.tolist(), range(at, at + size), strict=True))
    fresh = Index(dim, bits, keep_vectors=True, backend="reference")
    fresh.add(pool[list(held.values())], ids=np.array(list(held), np.int64))
    assert state(index) == state(fresh)


def test_removals_over_many_batches() -> None:
    x = gaussian(1, 20_000, 16)
    index = Index(16, 4, backend="reference")
    index.add(x)
    gone = np.flatnonzero(np.arange(20_000) % 7 == 3)
    index.remove(gone)
    index.remove(np.setdiff1d(np.arange(0, 20_000), gone)[5000:5001])
    fresh = Index(16, 4, backend="reference")
    fresh.add(x[index.ids], ids=index.ids)
    assert state(index) == state(fresh)
    index.remove(index.ids[100:])
    assert index.nbytes["codes"] < 4 * 112 * 8 * 4
