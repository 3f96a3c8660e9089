"""Plots of arms in a model's forward pass: bits against KL, and one thing varied at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..arms.outcome import CHECK, Outcome, outcomes
from ..arms.standard import ABLATIONS
from ..arms.summary import Row, rows
from ..records import Record
from .drawing import SERIES, Plot, new_figure, to_svg

_FP16_BITS: Final = 16
_COLUMNS: Final = ("arm", "page bits", "all in", "KL, nats", "worst text", "perplexity", "loses to")


def arm_plots(records: Sequence[Record]) -> list[Plot]:
    """Rate against predictions, a plot a model and set of texts, then its ablations."""
    runs: dict[str, list[Outcome]] = {}
    for outcome in outcomes(record for record in records if record.check == CHECK):
        runs.setdefault(f"{outcome.model}, {outcome.tokens} tokens", []).append(outcome)
    drawn = []
    for run, found in sorted(runs.items()):
        common = _same_texts(found)
        table = rows(common)
        texts = ", ".join(dict.fromkeys(outcome.text for outcome in common))
        drawn.append(_pareto(run, texts, table))
        drawn += [
            _ablation(run, name, [row for row in table if row.arm in arms])
            for name, arms in ABLATIONS.items()
            if len({row.arm for row in table} & set(arms)) > 1
        ]
    return drawn


def _same_texts(found: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes of the arms that ran on every text, so that all are compared on the same."""
    texts = {outcome.text for outcome in found}
    ran: dict[str, set[str]] = {}
    for outcome in found:
        ran.setdefault(outcome.arm, set()).add(outcome.text)
    return [outcome for outcome in found if ran[outcome.arm] == texts]


def _pareto(run: str, texts: str, table: Sequence[Row]) -> Plot:
    figure, axes = new_figure(3.6)
    shown = [row for row in table if row.page_bits < _FP16_BITS and row.kl > 0]
    best = [row for row in shown if row.loses_to is None]
    axes.plot([row.page_bits for row in best], [row.kl for row in best], color=SERIES[0])
    for row in shown:
        colour = SERIES[0] if row.loses_to is None else SERIES[1]
        axes.plot(row.page_bits, row.kl, color=colour, marker="o", markersize=4)
        axes.annotate(
            str(table.index(row) + 1),
            (row.page_bits, row.kl),
            textcoords="offset points",
            xytext=(4, 3),
            fontsize=8,
        )
    axes.set_yscale("log")
    axes.set_xlabel("page bits a value")
    axes.set_ylabel("next-token KL, nats")
    axes.grid(True)
    return Plot(
        f"Rate and predictions, {run}",
        f"Mean KL(full precision || arm) of next tokens over texts {texts}; numbers as in the "
        "table, the line joins arms that lose to none of no more bits.",
        to_svg(figure, f"arms-{run}"),
        _COLUMNS,
        tuple(_cells(f"{number}: {row.arm}", row) for number, row in enumerate(table, 1)),
    )


def _ablation(run: str, name: str, table: Sequence[Row]) -> Plot:
    ordered = sorted(table, key=lambda row: ABLATIONS[name].index(row.arm))
    figure, axes = new_figure(0.9 + 0.3 * len(ordered))
    labels = [f"{number}" for number in range(1, len(ordered) + 1)]
    axes.barh(labels, [row.kl for row in ordered], color=SERIES[0], height=0.6)
    axes.invert_yaxis()
    axes.set_xlabel("next-token KL, nats")
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    return Plot(
        f"Ablation: {name}, {run}",
        "All else as in the preset turbo with a window of 32.",
        to_svg(figure, f"ablation-{name}-{run}"),
        _COLUMNS,
        tuple(_cells(f"{number}: {row.arm}", row) for number, row in enumerate(ordered, 1)),
    )


def _cells(name: str, row: Row) -> tuple[str, ...]:
    return (
        name,
        f"{row.page_bits:.3f}",
        f"{row.all_in_bits:.3f}",
        f"{row.kl:.4g}",
        f"{row.worst:.4g}",
        f"{row.perplexity_rise:+.2%}",
        row.loses_to or "",
    )
