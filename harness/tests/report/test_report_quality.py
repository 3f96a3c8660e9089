"""Plots of the quality suite hold what was measured, with its intervals."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from synthetic import make

from kvassay.records import Record
from kvassay.report.plots import Plot, plots

STAGE = "real model scalar"
POSITIONS = [
    {"from": 100 * n, "to": 100 * n + 100, "kl": 0.01 * n, "top1": 0.9, "drift": 0.02 * n,
     "nll_rise": 0.001}
    for n in (1, 2, 3)
]  # fmt: skip


def measured() -> list[Record]:
    interval = {"interval": [0.004, 0.006]}
    return [
        make("quality.next_token_kl", 0.005, subject="fixed text", stage=STAGE, detail=interval),
        make("quality.prefill_kl", 0.007, subject="chunks of 128", stage=STAGE, detail=interval),
        make("quality.greedy_divergence", 21.5, subject="free running", stage=STAGE),
        make("quality.logit_drift", 0.05, stage=STAGE, detail={"by_position": POSITIONS}),
        make("quality.residual_cosine", 0.99, stage=STAGE,
             detail={"logit_drift_by_layer": [0.01, 0.02]}),
        make("quality.attention_kl", 0.003, subject="layer 1", stage=STAGE),
        make("quality.attention_kl", 0.004, subject="all layers", stage=STAGE),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> dict[str, Plot]:
    return {plot.title: plot for plot in plots(measured())}


def test_figures_stand_with_their_intervals(drawn: dict[str, Plot]) -> None:
    rows = drawn["Predictions with a cache in the loop"].rows
    assert [(row[1], row[2]) for row in rows] == [
        ("next_token_kl", "fixed text"),
        ("logit_drift", ""),
        ("residual_cosine", ""),
        ("prefill_kl", "chunks of 128"),
        ("greedy_divergence", "free running"),
        ("attention_kl", "all layers"),
    ]
    assert rows[0][4] == "0.004 to 0.006"
    assert rows[4][4] == "-"
    assert all(row[0] == "turbo, reference/scalar" for row in rows)


def test_drift_is_drawn_by_position_and_by_layer(drawn: dict[str, Plot]) -> None:
    position = drawn["Logit drift by position"]
    assert position.rows[1][1:] == ("200 to 299", "0.04", "0.02", "0.9", "0.001")
    layer = drawn["Logit drift by layer"]
    assert layer.columns == ("layer", "turbo, reference/scalar")
    assert layer.rows == (("0", "0.01"), ("1", "0.02"))


def test_they_are_sound_and_follow_the_colours_of_the_page(drawn: dict[str, Plot]) -> None:
    assert len(drawn) == 3
    for plot in drawn.values():
        ElementTree.fromstring(plot.svg)
        assert "var(--series" in plot.svg
        assert not re.search(r"#0000[0-9c][0-9]", plot.svg)


def test_what_was_taken_over_is_drawn_once() -> None:
    first = measured()
    copies = [
        make(r.check, r.value, backend="native", subject=r.subject, stage=STAGE,
             detail={**r.detail, "shared_with": "reference scalar"})
        for r in first
    ]  # fmt: skip
    again = {plot.title: plot for plot in plots([*first, *copies])}
    assert len(again["Predictions with a cache in the loop"].rows) == 6
