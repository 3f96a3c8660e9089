"""The figures that papers and the project quote, and exact bytes against a token-by-token count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kvassay import Spec, preset
from kvassay.errors import InputError
from kvassay.page.costs import (
    Costs,
    blocked_work,
    compression,
    dense_work,
    longest,
    padded_work,
    page_bits,
    payback,
    payload,
    saved_bytes,
    split_bits,
    vector_bytes,
)
from kvassay.page.layout import PageLayout

MIB = 2**20
#: L H d of the worked example, at 32768 tokens.
VALUES, TOKENS = 30720, 32768


def test_shares_of_a_page() -> None:
    plain = page_bits(3, 0, 32, 8, 128)
    assert plain - 3 == pytest.approx(0.016, abs=5e-4)
    assert page_bits(3, 8, 32, 8, 128) - plain == 0.0625
    assert page_bits(3, 8, 32, 8, 128, aux=24) - page_bits(3, 8, 32, 8, 128) == 0.1875


def test_compression_by_code_bits() -> None:
    assert compression(3.5, 3.0) == pytest.approx(4.92, abs=5e-3)
    assert compression(16, 16) == 1


@pytest.mark.parametrize(("bits", "mib"), [(16, 3840), (8, 1920), (4, 960)])
def test_payload_of_the_worked_example(bits: int, mib: int) -> None:
    assert payload(2 * VALUES * TOKENS, bits) == mib * MIB


def test_payload_with_a_window_of_the_worked_example() -> None:
    coded = VALUES * (TOKENS - 128) * (3.5 + 3.0) / 8
    assert (coded + payload(2 * VALUES * 128, 16)) / MIB == pytest.approx(792, abs=0.5)
    assert saved_bytes(VALUES * TOKENS, 3.5, 3.0) == VALUES * TOKENS * (4 - 6.5 / 8)


def test_longest_context_by_formula_is_the_inverse_of_the_payload() -> None:
    assert longest(VALUES * 100 * 6.5 / 8 + 7, 7, VALUES, 3.5, 3.0) == 100
    assert longest(VALUES * 100 * 6.5 / 8 + 6, 7, VALUES, 3.5, 3.0) == 99
    assert longest(1, 7, VALUES, 3.5, 3.0) == 0


@pytest.mark.parametrize(("dim", "ratio"), [(80, 6.3), (96, 9.0), (128, 16.0), (160, 11.1)])
def test_dense_transform_against_the_next_power_of_two(dim: int, ratio: float) -> None:
    assert dense_work(dim) / padded_work(dim) == pytest.approx(ratio, abs=0.05)


def test_the_transform_of_the_contract() -> None:
    assert blocked_work(128, rounds=1) == 128 * 7 + 128
    assert blocked_work(80) == 2 * (80 * 4 + 80)


def test_a_published_two_and_a_half_bits_is_less() -> None:
    assert split_bits((32, 3), (96, 2)) == 2.25
    assert split_bits((64, 2), (64, 3)) == 2.5


@pytest.mark.parametrize(
    ("dim", "two", "four"),
    [
        (64, 24, 40),
        (128, 40, 72),
        (200, 58, 108),
        (256, 72, 136),
        (768, 200, 392),
        (1536, 392, 776),
    ],
)
def test_bytes_of_a_vector_stored_alone(dim: int, two: int, four: int) -> None:
    assert (vector_bytes(dim, 2), vector_bytes(dim, 4)) == (two, four)


def test_payback() -> None:
    assert payback(1000, 1e-9, saved=500, bandwidth=1e9) == pytest.approx(2.0)
    assert payback(1000, 1e-9, saved=0, bandwidth=1e9) == math.inf


SHAPE: dict[str, Any] = {"layers": 3, "kv_heads": 2, "query_heads": 4, "head_dim": 64}
SPECS = [
    Spec(**SHAPE),
    preset("turbo", **SHAPE),
    preset("turbo-qjl", **SHAPE, page_tokens=48),
    preset("kivi", **SHAPE),
    preset("turbo", **{**SHAPE, "head_dim": 80}, scale="fp16", window=5, sinks=0),
    preset("turbo", **SHAPE, span=150, window=16, page_tokens=32),
    preset(
        "turbo",
        **SHAPE,
        window=32,
        layer_overrides={0: {"keys": "fp16", "values": "fp16"}, 2: {"span": 70, "page_tokens": 16}},
    ),
]
by_spec = pytest.mark.parametrize("spec", SPECS, ids=[spec.digest for spec in SPECS])


def count_bytes(spec: Spec, tokens: int) -> tuple[int, int]:
    """Bytes and values held, by playing the life cycle token by token."""
    total = held = 0
    for layer in spec.layer_specs:
        vector = layer.kv_heads * layer.head_dim
        first, pages, ever = 0, 0, 0
        for length in range(1, tokens + 1):
            reach = length - 1 - (layer.span or math.inf)
            while pages and layer.sinks + (first + 1) * layer.page_tokens <= reach:
                first, pages = first + 1, pages - 1
            if length - layer.sinks - layer.window - ever * layer.page_tokens >= layer.page_tokens:
                ever, pages = ever + 1, pages + 1
        plain = tokens - ever * layer.page_tokens
        frozen = [layer.key_centre, layer.value_centre].count("frozen") if ever else 0
        total += pages * PageLayout(layer).size + 4 * vector * plain + 2 * vector * frozen
        held += 2 * vector * (plain + pages * layer.page_tokens)
    return total, held


@by_spec
def test_bytes_held_follow_the_life_cycle(spec: Spec) -> None:
    costs = Costs.of(spec)
    for tokens in (1, 4, 5, 63, 64, 131, 132, 133, 195, 196, 197, 260, 400):
        held, values = count_bytes(spec, tokens)
        assert costs.held(tokens) == held
        assert costs.all_in_bits(tokens) == 8 * held / values
        assert sum(costs.parts(tokens).values()) == held
    assert costs.held(0) == 0


@by_spec
def test_the_longest_context_fits_and_one_more_token_does_not(spec: Spec) -> None:
    costs = Costs.of(spec)
    lengths = range(3000)
    held = np.array([costs.held(tokens) for tokens in lengths])
    for budget in (0, 1, 5000, int(held[200]), int(held[500]) - 1, int(held[1500])):
        found = costs.longest(budget)
        over = np.flatnonzero(held > budget)
        if over.size:
            assert found == over[0] - 1
        else:
            assert found is None or found >= len(lengths)


def test_a_span_makes_context_free_and_an_unbounded_budget_is_answered_at_once() -> None:
    short = preset("turbo", **SHAPE, span=150, window=16)
    assert Costs.of(short).longest(10**9) is None
    assert Costs.of(short).longest(5000) is not None
    tokens = Costs.of(preset("turbo", **SHAPE)).longest(2**50)
    assert tokens is not None
    assert tokens > 10**11


def test_exact_bits_lie_above_the_code_bits_and_near_the_formula() -> None:
    spec = preset("turbo", layers=1, kv_heads=8, query_heads=8, head_dim=128, value_centre="none")
    costs = Costs.of(spec)
    assert costs.code_bits == 6.5
    mean, maxima = 16 / 64, 32 / (64 * 128)
    keys = page_bits(3.5, 8, 64, 8, 128) + mean + maxima
    values = page_bits(3.0, 8, 64, 8, 128) + maxima
    header = 512 / (64 * 8 * 128)
    assert costs.page_bits == pytest.approx((keys + values - header) / 2)
    assert 16 / costs.page_bits < compression(3.5, 3.0)


def test_saved_bytes_and_appends() -> None:
    costs = Costs.of(preset("turbo", **SHAPE))
    assert costs.saved(1000) == 2 * costs.values * 1000 - costs.held(1000)
    assert Costs.of(Spec(**SHAPE)).append_ops() == 0
    per_head = 2 * (2 * 64 + blocked_work(64)) + 32 * 4 + 32 * 8 + 64 * 4
    assert costs.append_ops() == 3 * 2 * per_head
    assert costs.fixed() == 3 * 4 * 2 * 64 * (4 + 128)
    frozen = Costs.of(preset("turbo", **SHAPE, value_centre="frozen"))
    assert frozen.fixed() == costs.fixed() + 3 * 2 * 2 * 64


@pytest.mark.parametrize("call", ["held", "fp16", "parts", "saved", "longest", "all_in_bits"])
def test_negative_figures_are_refused(call: str) -> None:
    with pytest.raises(InputError, match="-1"):
        getattr(Costs.of(SPECS[0]), call)(-1)
    with pytest.raises(InputError, match="at least 1"):
        Costs.of(SPECS[0]).all_in_bits(0)
