"""Every plot of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure

from ..judging.rules import rulebook
from ..protocol import BYTE_PARTS
from ..records import Record
from .arms import arm_plots
from .drawing import (
    LIMIT,
    SERIES,
    STYLE,
    WIDTH,
    Plot,
    colour,
    draw_legend,
    new_figure,
    place,
    to_svg,
)
from .fidelity import quality, rate_distortion
from .quality import quality_plots
from .speed import break_even, over_context, roofline

__all__ = ["Plot", "plots"]


def plots(records: Iterable[Record]) -> list[Plot]:
    """Every plot that the records have numbers for."""
    found = list(records)
    with matplotlib.rc_context(STYLE):
        drawn = [
            _by_layer(
                found,
                "quality.attention_kl",
                "Attention KL by layer",
                "Median over heads and sampled queries of KL(full precision || cache), in nats.",
                "nats",
            ),
            _by_layer(
                found,
                "quality.output_error",
                "Attention output error by layer",
                "Relative RMS error of attention outputs against full precision.",
                "relative RMS",
            ),
            *quality_plots(found),
            _memory(found),
            *_over_tokens(found),
            *arm_plots(found),
            *over_context(found),
            roofline(found),
            break_even(found),
            *rate_distortion(found),
            quality(found),
        ]
    return [plot for plot in drawn if plot is not None]


def _by_layer(
    records: Sequence[Record], check: str, title: str, caption: str, unit: str
) -> Plot | None:
    """One line a preset; backends that share a pass share the line."""
    lines: dict[str, dict[int, float]] = {}
    for record in records:
        values = record.detail.get("by_layer")
        if record.check != check or not values or "shared_with" in record.detail:
            continue
        who = f"{record.backend}/{record.variant}"
        name = record.preset if record.preset not in lines else f"{record.preset}, {who}"
        layers = record.detail.get("layers", range(len(values)))
        lines.setdefault(name, {int(n): float(v) for n, v in zip(layers, values, strict=True)})
    if not lines:
        return None
    figure, axes = new_figure()
    for name, values in lines.items():
        axes.plot(
            list(values), list(values.values()), color=colour(name), label=name,
            linewidth=1.6, marker="o", markersize=3, linestyle=":" if "," in name else "-",
        )  # fmt: skip
    limit = _limit(check)
    if limit is not None:
        label = f"median limit {limit:g}"
        axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1, label=label)
    if any(value > 0 for values in lines.values() for value in values.values()):
        axes.set_yscale("log")
    axes.set_xlabel("layer")
    axes.set_ylabel(unit)
    axes.grid(True, axis="y")
    draw_legend(axes)
    rows = tuple(
        (str(layer), *(f"{v[layer]:.4g}" if layer in v else "-" for v in lines.values()))
        for layer in sorted(set().union(*lines.values()))
    )
    return Plot(title, caption, to_svg(figure, check), ("layer", *lines), rows)


def _memory(records: Sequence[Record]) -> Plot | None:
    """Bytes billed by part after the tokens were appended: a bar a preset and backend."""
    bars: dict[str, tuple[int, Mapping[str, float]]] = {}
    for record in sorted(records, key=lambda record: (record.backend, record.variant)):
        parts = record.detail.get("appended", {}).get("billed")
        if record.check == "memory.unbilled_bytes" and parts:
            name = f"{record.preset}, {record.backend}/{record.variant}"
            bars[name] = (int(record.detail.get("tokens", 0)), parts)
    if not bars:
        return None
    names = sorted(bars, key=place)
    shown = [part for part in BYTE_PARTS if any(bars[name][1].get(part) for name in names)]
    figure, axes = new_figure(1.4 + 0.3 * len(names))
    left = [0.0] * len(names)
    for part in shown:
        widths = [bars[name][1].get(part, 0) / 2**20 for name in names]
        colour = SERIES[BYTE_PARTS.index(part)]
        axes.barh(names, widths, left=left, color=colour, label=part, height=0.6)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("MiB")
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    draw_legend(axes)
    rows = tuple(
        (name, f"{bars[name][0]:,}", *(f"{bars[name][1].get(part, 0):,.0f}" for part in shown))
        for name in names
    )
    return Plot(
        "Memory by part",
        "Bytes held after the tokens were appended, by what they hold.",
        to_svg(figure, "memory"),
        ("preset and backend", "tokens", *(f"{part}, bytes" for part in shown)),
        rows,
    )


def _over_tokens(records: Sequence[Record]) -> list[Plot]:
    """Bytes billed by part over the length of the context: a plot a backend, a panel a preset."""
    panels: dict[str, dict[str, list[tuple[int, Mapping[str, float]]]]] = {}
    for record in records:
        caches = record.detail.get("caches")
        if record.check == "memory.rss_slope" and caches:
            points = [(int(cache["tokens"]), cache["billed"]) for cache in caches]
            who = f"{record.backend}/{record.variant}"
            panels.setdefault(who, {})[record.preset] = points
    return [_panels(who, panels[who]) for who in sorted(panels)]


def _panels(who: str, presets: Mapping[str, list[tuple[int, Mapping[str, float]]]]) -> Plot:
    names = sorted(presets, key=place)
    every = [parts for name in names for _, parts in presets[name]]
    shown = [part for part in BYTE_PARTS if any(parts.get(part) for parts in every)]
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    figure.patch.set_alpha(0)
    drawn = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(drawn, names, strict=True):
        tokens = [n / 1024 for n, _ in presets[name]]
        layers = [[parts.get(part, 0) / 2**20 for _, parts in presets[name]] for part in shown]
        colours = [SERIES[BYTE_PARTS.index(part)] for part in shown]
        axes.stackplot(tokens, layers, colors=colours, labels=shown)
        axes.patch.set_alpha(0)
        axes.set_title(name)
        axes.set_xlabel("1024 tokens")
        axes.grid(True, axis="y")
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("MiB")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=5, fontsize=9)
    rows = tuple(
        (name, f"{n:,}", *(f"{parts.get(part, 0):,.0f}" for part in shown))
        for name in names
        for n, parts in presets[name]
    )
    return Plot(
        f"Memory over tokens, {who}",
        "Bytes billed by part as the context grows, one layer of 4 KV heads of 128 channels.",
        to_svg(figure, f"tokens-{who}"),
        ("preset", "tokens", *(f"{part}, bytes" for part in shown)),
        rows,
    )


def _limit(check: str) -> float | None:
    for rule in rulebook().rules:
        if rule.check == check:
            return rule.maximum
    return None
