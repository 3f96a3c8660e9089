"""Plots of the performance suite: times over context, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..records import Record
from .drawing import Plot, colour, draw_legend, new_figure, place, to_svg

_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")


def over_context(records: Sequence[Record]) -> list[Plot]:
    """Time of a decode step over the length of the context: a plot a backend, a line a preset."""
    lines: dict[str, dict[str, dict[int, Record]]] = {}
    for record in records:
        if record.check == "performance.decode" and record.comparisons > 0:
            who = f"{record.backend}/{record.variant}"
            presets = lines.setdefault(who, {})
            presets.setdefault(record.preset, {})[int(record.detail["tokens"])] = record
    return [_latency(who, lines[who]) for who in sorted(lines)]


def _latency(who: str, presets: Mapping[str, Mapping[int, Record]]) -> Plot:
    figure, axes = new_figure()
    names = sorted(presets, key=place)
    for name in names:
        found = sorted(presets[name].items())
        tokens = [n for n, _ in found]
        values = [record.value for _, record in found]
        spread = [
            [record.value - record.detail["low"] for _, record in found],
            [record.detail["high"] - record.value for _, record in found],
        ]
        axes.errorbar(
            tokens, values, np.maximum(spread, 0), color=colour(name), label=name,
            linewidth=1.6, marker="o", markersize=4, capsize=3,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens of context")
    axes.set_ylabel("us a step")
    axes.grid(True, axis="y", which="both")
    draw_legend(axes)
    lengths = sorted(set().union(*presets.values()))
    rows = tuple((f"{n:,}", *(_cell(presets[name].get(n)) for name in names)) for n in lengths)
    shape = next(iter(next(iter(presets.values())).values())).subject.partition(", ")[2]
    return Plot(
        f"Latency over context, {who}",
        f"Append of a token and attention of one query, one layer, {shape}; thread time, 95 % "
        "interval of the median.",
        to_svg(figure, f"latency-{who}"),
        ("tokens", *(f"{name}, us" for name in names)),
        rows,
    )


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    low, high = record.detail["low"], record.detail["high"]
    return f"{record.value:.4g} [{low:.4g}, {high:.4g}]"


def roofline(records: Sequence[Record]) -> Plot | None:
    """Operations a second over operations a byte, below the roofs of the machine."""
    found = [r for r in records if r.check == "performance.roofline" and r.comparisons > 0]
    if not found:
        return None
    backends = sorted({f"{r.backend}/{r.variant}" for r in found})
    figure, axes = new_figure(3.6)
    bandwidth = max(r.detail["bandwidth"] for r in found)
    peak = max(r.detail["peak"] for r in found)
    intensities = [r.detail["operations"] / r.detail["bytes"] for r in found]
    span = np.geomspace(min(intensities) / 2, max(*intensities, peak / bandwidth) * 2, 64)
    axes.plot(span, np.minimum(span * bandwidth, peak) / 1e9, color=colour("fp16"),
              linewidth=1.2, linestyle="--", label="roof")  # fmt: skip
    for record, intensity in zip(found, intensities, strict=True):
        who = f"{record.backend}/{record.variant}"
        axes.plot(
            intensity, record.detail["operations"] / record.detail["seconds"] / 1e9,
            color=colour(record.preset), marker=_MARKERS[backends.index(who) % len(_MARKERS)],
            markersize=6, linestyle="none",
        )  # fmt: skip
    for name in sorted({r.preset for r in found}, key=place):
        axes.plot([], [], color=colour(name), marker="o", linestyle="none", label=name)
    for number, who in enumerate(backends):
        axes.plot([], [], color=colour("fp16"), marker=_MARKERS[number % len(_MARKERS)],
                  linestyle="none", fillstyle="none", label=who)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("operations a byte of cache")
    axes.set_ylabel("Gop/s of attention")
    axes.grid(True, which="both")
    draw_legend(axes)
    rows = tuple(
        (
            f"{r.backend}/{r.variant} {r.preset}, {r.subject}",
            f"{r.detail['bytes']:,}",
            f"{intensity:.3g}",
            f"{r.detail['operations'] / r.detail['seconds'] / 1e9:.3g}",
            f"{r.value:.1%}",
        )
        for r, intensity in zip(found, intensities, strict=True)
    )
    return Plot(
        "Roofline",
        f"Attention's own operations (a multiplication and an addition for each value and query "
        f"head) over the bytes of the cache, below a read of {bandwidth / 1e9:.3g} GB/s and "
        f"{peak / 1e9:.3g} Gop/s of a float32 matrix product on one core.",
        to_svg(figure, "roofline"),
        ("step", "bytes", "operations a byte", "Gop/s", "of the roof"),
        rows,
    )


def break_even(records: Sequence[Record]) -> Plot | None:
    """Contexts from which a preset is faster than fp16, and tokens that pay for its appends."""
    faster = {
        (f"{r.preset}, {r.backend}/{r.variant}", int(r.detail["tokens"])): r
        for r in records
        if r.check == "performance.break_even" and r.comparisons > 0
    }
    paid = {
        (f"{r.preset}, {r.backend}/{r.variant}", int(r.detail["tokens"])): r
        for r in records
        if r.check == "performance.payback" and r.comparisons > 0
    }
    names = sorted({name for name, _ in faster}, key=place)
    if not names:
        return None
    longest = {name: max(n for other, n in faster if other == name) for name in names}
    figure, axes = new_figure(1.6 + 0.3 * len(names))
    for number, name in enumerate(names):
        record = faster[name, longest[name]]
        marks = ((record.value, "full"), (float(record.detail["predicted"]["break_even"]), "none"))
        for value, fill in marks:
            if 0 < value < math.inf:
                axes.plot([value], [number], marker="o", markersize=6, color=colour(name),
                          fillstyle=fill, linestyle="none")  # fmt: skip
    for label, fill in (("measured", "full"), ("predicted", "none")):
        axes.plot([], [], marker="o", color=colour("fp16"), fillstyle=fill, linestyle="none",
                  label=label)  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("tokens of context")
    axes.grid(True, axis="x")
    draw_legend(axes)
    rows = tuple(
        (f"{name}, {n:,} tokens", *_pair(faster[name, n], "break_even"), *_pair(r, "payback"))
        for name in names
        for (other, n), r in sorted(paid.items())
        if other == name and (name, n) in faster
    )
    return Plot(
        "Where a preset gets faster than fp16",
        "The context from which a decode step takes less time than with fp16, measured at the "
        "longest context, and predicted from bytes, operations and the roofs of the machine. None "
        "is drawn where the step never gets faster.",
        to_svg(figure, "break-even"),
        (
            "preset and context",
            "faster from",
            "predicted",
            "generated tokens that pay",
            "predicted",
        ),
        rows,
    )


def _pair(record: Record, name: str) -> tuple[str, str]:
    """A figure, measured and predicted."""
    found = (record.value, float(record.detail["predicted"][name]))
    first, second = (f"{value:,.0f}" if value < math.inf else "never" for value in found)
    return first, second
