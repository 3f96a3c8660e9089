"""Arms in the report: a Pareto plot with every row, and ablations side by side."""

from __future__ import annotations

from dataclasses import replace

from kvassay.arms import Outcome
from kvassay.arms.standard import ABLATIONS
from kvassay.report.plots import plots

ONE = Outcome("", "model", "a", False, "", 300, 200, 1.0, 1.0, 6.0, 5.0, 4, 3.0, 4.0)


def _outcomes(**bits_and_kl: tuple[float, float]) -> list[Outcome]:
    return [
        replace(ONE, arm=arm, text=text, page_bits=bits, kl=kl)
        for arm, (bits, kl) in bits_and_kl.items()
        for text in ("a", "b")
    ]


def test_losers_are_in_the_table_and_not_on_the_line() -> None:
    found = _outcomes(good=(3.0, 1.0), loser=(4.0, 2.0), better=(4.5, 0.5))
    (drawn,) = plots([outcome.to_record() for outcome in found])
    assert drawn.title == "Rate and predictions, model, 300 tokens"
    assert [row[0] for row in drawn.rows] == ["1: good", "2: loser", "3: better"]
    assert [row[-1] for row in drawn.rows] == ["", "good", ""]
    assert drawn.svg.count("<svg") == 1


def test_arms_that_miss_a_text_are_not_compared_with_those_that_do_not() -> None:
    found = _outcomes(good=(3.0, 1.0), other=(4.0, 0.5))[:3]
    (drawn,) = plots([outcome.to_record() for outcome in found])
    assert [row[0] for row in drawn.rows] == ["1: good"]


def test_an_ablation_is_drawn_where_two_of_its_arms_were_measured() -> None:
    first, second, *_ = ABLATIONS["window"]
    found = _outcomes(**{second: (3.0, 0.5), first: (3.0, 1.0)})
    pareto, ablation = plots([outcome.to_record() for outcome in found])
    assert ablation.title == "Ablation: window, model, 300 tokens"
    assert [row[0] for row in ablation.rows] == [f"1: {first}", f"2: {second}"]
    assert len(pareto.rows) == 2
