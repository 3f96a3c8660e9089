"""Plots of the quality suite: predictions with intervals, drift by position and by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ..records import Record
from .drawing import Plot, colour, draw_legend, new_figure, place, to_svg

#: Checks of the table, in order.
_FIGURES: Final = (
    *("quality.next_token_kl", "quality.next_token_top1", "quality.next_token_topk"),
    *("quality.nll_rise", "quality.logit_drift", "quality.residual_cosine"),
    *("quality.prefill_kl", "quality.prefill_top1", "quality.prefill_nll_rise"),
    *("quality.greedy_divergence", "quality.sampled_divergence"),
    *("quality.attention_kl", "quality.shadow_kl", "quality.lane_kl", "quality.transform_share"),
)
_DRAWN: Final = ("quality.next_token_kl", "quality.prefill_kl")


def quality_plots(records: Sequence[Record]) -> list[Plot]:
    """Those that the records have numbers for; figures taken over from another are shown once."""
    found = [
        record
        for record in records
        if record.check in _FIGURES and record.comparisons and "shared_with" not in record.detail
    ]
    drawn = (_predictions(found), _by_position(found), _by_layer(found))
    return [plot for plot in drawn if plot is not None]


def _who(record: Record) -> str:
    return f"{record.preset}, {record.backend}/{record.variant}"


def _predictions(records: Sequence[Record]) -> Plot | None:
    drawn = [record for record in records if record.check in _DRAWN and record.value > 0]
    if not drawn:
        return None
    names = sorted({_who(record) for record in drawn}, key=place)
    figure, axes = new_figure(1.6 + 0.35 * len(names))
    for number, check in enumerate(_DRAWN):
        for record in (one for one in drawn if one.check == check):
            low, high = record.detail.get("interval") or (record.value, record.value)
            spread = np.nan_to_num([[record.value - low], [high - record.value]])
            axes.errorbar(
                record.value, names.index(_who(record)) + 0.2 * number, xerr=np.maximum(spread, 0),
                color=colour(record.preset), marker="os"[number], markersize=5, capsize=3,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("nats")
    axes.grid(True, axis="x")
    shown = [record for record in records if record.check != "quality.attention_kl"
             or record.subject == "all layers"]  # fmt: skip
    shown.sort(key=lambda record: (place(_who(record)), _who(record), _FIGURES.index(record.check)))
    return Plot(
        "Predictions with a cache in the loop",
        "Mean KL(full precision || cache) of next-token distributions on the fixed text with 95 % "
        "intervals: query by query (circles) and in chunks of a prefill (squares). The table has "
        "every figure.",
        to_svg(figure, "predictions"),
        ("preset and backend", "figure", "over", "value", "95 % interval", "comparisons"),
        tuple(_row(record) for record in shown),
    )


def _row(record: Record) -> tuple[str, ...]:
    interval = record.detail.get("interval")
    return (
        _who(record),
        record.check.partition(".")[2],
        record.subject,
        f"{record.value:.4g} {record.unit}",
        "-" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}",
        f"{record.comparisons:,}",
    )


def _lines(records: Sequence[Record], check: str, key: str) -> Iterator[tuple[str, str, Any]]:
    for record in records:
        if record.check == check and record.detail.get(key):
            yield _who(record), record.preset, record.detail[key]


def _by_position(records: Sequence[Record]) -> Plot | None:
    lines = list(_lines(records, "quality.logit_drift", "by_position"))
    if not lines:
        return None
    figure, axes = new_figure()
    for who, preset, rows in lines:
        axes.plot(
            [(row["from"] + row["to"]) / 2 for row in rows], [row["drift"] for row in rows],
            color=colour(preset), label=who, linewidth=1.6, marker="o", markersize=4,
        )  # fmt: skip
    axes.set_xlabel("position in the text")
    axes.set_ylabel("relative RMS")
    axes.grid(True, axis="y")
    draw_legend(axes)
    return Plot(
        "Logit drift by position",
        "Relative RMS of next-token logits against full precision, in equal parts of the text.",
        to_svg(figure, "drift-by-position"),
        ("preset and backend", "positions", "drift", "KL, nats", "same first token", "NLL rise"),
        tuple(
            (
                who,
                f"{row['from']} to {row['to'] - 1}",
                *(f"{row[name]:.4g}" for name in ("drift", "kl", "top1", "nll_rise")),
            )
            for who, _, rows in lines
            for row in rows
        ),
    )


def _by_layer(records: Sequence[Record]) -> Plot | None:
    lines = list(_lines(records, "quality.residual_cosine", "logit_drift_by_layer"))
    if not lines:
        return None
    figure, axes = new_figure()
    for who, preset, values in lines:
        axes.plot(
            range(len(values)), values, color=colour(preset), label=who, linewidth=1.6,
            marker="o", markersize=3,
        )  # fmt: skip
    axes.set_xlabel("layer")
    axes.set_ylabel("relative RMS")
    axes.grid(True, axis="y")
    draw_legend(axes)
    layers = max(len(values) for _, _, values in lines)
    return Plot(
        "Logit drift by layer",
        "Relative RMS of the logits that the model would give if it ended behind a layer, with the "
        "cache in the loop, against full precision.",
        to_svg(figure, "drift-by-layer"),
        ("layer", *(who for who, _, _ in lines)),
        tuple(
            (str(layer), *(f"{v[layer]:.4g}" if layer < len(v) else "-" for _, _, v in lines))
            for layer in range(layers)
        ),
    )
