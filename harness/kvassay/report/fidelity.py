"""Plots of what bits buy: distortion of each codec, and quality of each preset, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from ..judging.rules import rulebook
from ..records import Record
from .drawing import LIMIT, SERIES, Plot, colour, draw_legend, new_figure, place, to_svg

_INTERVAL: Final = ("low", "high")
#: Distortion hardly depends on it; where several were measured, the one nearest to this is drawn.
_HEAD_DIM: Final = 128


def rate_distortion(records: Sequence[Record]) -> list[Plot]:
    """Distortion over the bits of a page: a plot a stream, a line a family of codecs.

    Backends that are exact have the same figures, so the first that measured a codec is drawn.
    """
    streams: dict[str, dict[tuple[str, int], Record]] = {}
    for record in records:
        if record.check == "correctness.distortion_ratio" and "page_bits" in record.detail:
            stream, codec, dim = record.subject.split()
            points = streams.setdefault(stream, {})
            points.setdefault((codec, int(dim[1:])), record)
    drawn = (_distortion(stream, points) for stream, points in sorted(streams.items()))
    return [plot for plot in drawn if plot is not None]


def _distortion(stream: str, points: Mapping[tuple[str, int], Record]) -> Plot | None:
    near = sorted(points, key=lambda point: (abs(point[1] - _HEAD_DIM), point))
    shown: dict[str, Record] = {}
    for codec, d in near:
        if codec != "fp16":  # off the scale of all others
            shown.setdefault(codec, points[codec, d])
    if not shown:
        return None
    figure, axes = new_figure()
    families: dict[str, list[tuple[float, Record]]] = {}
    for codec, record in shown.items():
        family = codec.partition(":")[0] + ("+qjl" if codec.endswith("+qjl") else "")
        families.setdefault(family, []).append((record.detail["page_bits"], record))
    for number, family in enumerate(sorted(families), 1):
        found = sorted(families[family], key=lambda pair: pair[0])
        axes.plot(
            [bits for bits, _ in found], [record.detail["measured"] for _, record in found],
            color=SERIES[number % len(SERIES)], label=family, linewidth=1.6, marker="o",
            markersize=4,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("bits a value, everything in the page counted")
    axes.set_ylabel("vNMSE")
    axes.grid(True, which="both")
    draw_legend(axes)
    rows = tuple(
        (
            f"{codec}, {d} channels",
            f"{record.detail['page_bits']:.3f}",
            _with_interval(record.detail["measured"], record.detail),
            f"{record.detail['expected']:.4g}",
            f"{record.comparisons:,}",
        )
        for (codec, d), record in sorted(points.items())
    )
    return Plot(
        f"Rate and distortion, {stream}",
        "Mean squared error of Gaussian vectors over their square, read back through attention, at "
        f"the head dimension nearest to {_HEAD_DIM} that was measured. Lower left is better.",
        to_svg(figure, f"distortion-{stream}"),
        ("codec", "bits", "vNMSE [95 %]", "theory", "vectors"),
        rows,
    )


def quality(records: Sequence[Record]) -> Plot | None:
    """KL of next tokens over bits: a point a preset, with the interval of its mean."""
    found: dict[str, Record] = {}
    for record in records:
        if record.check == "quality.next_token_kl" and "page_bits" in record.detail:
            found.setdefault(record.preset, record)
    names = sorted(found, key=place)
    drawn = [name for name in names if 0 < found[name].value < math.inf]
    if not drawn:
        return None
    figure, axes = new_figure()
    for name in drawn:
        record = found[name]
        low, high = _interval(record)
        axes.errorbar(
            [record.detail["page_bits"]], [record.value],
            [[record.value - low], [high - record.value]],
            color=colour(name), label=name, marker="o", markersize=5, capsize=4, linestyle="none",
        )  # fmt: skip
    limit = rulebook().rule("quality.next_token_kl").maximum
    if limit is not None:
        axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1, label=f"limit {limit:g}")
    axes.set_yscale("log")
    axes.set_xlabel("bits a value of sealed pages")
    axes.set_ylabel("KL of next tokens, nats")
    axes.grid(True, which="both")
    draw_legend(axes)
    rows = tuple(
        (
            name,
            f"{found[name].detail['page_bits']:.3f}",
            _with_interval(
                found[name].value, dict(zip(_INTERVAL, _interval(found[name]), strict=True))
            ),
            f"{found[name].comparisons:,}",
        )
        for name in names
    )
    return Plot(
        "Quality over bits",
        "Mean KL(full precision || cache) of next-token distributions on the real model, with 95 % "
        "of its block bootstrap. Lower left is better.",
        to_svg(figure, "quality"),
        ("preset", "bits", "KL, nats [95 %]", "tokens"),
        rows,
    )


def _with_interval(value: float, detail: Mapping[str, float]) -> str:
    if "low" not in detail:
        return f"{value:.4g}"
    return f"{value:.4g} [{detail['low']:.4g}, {detail['high']:.4g}]"


def _interval(record: Record) -> tuple[float, float]:
    """The ends of a mean's interval; the value itself where too few positions gave none."""
    low, high = record.detail.get("interval", (math.nan, math.nan))
    return (low, high) if low <= high else (record.value, record.value)
