"""Pareto plots of rate and distortion: one HTML page with inline SVG and the numbers as tables."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from ..arms.summary import Row
from .figures import Figures
from .legends import INPUTS, loses_to, losses

_STYLE = (
    "body{font:15px sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.15rem .6rem;text-align:right}"
    "td:first-child,td:last-child{text-align:left}svg{width:100%;height:auto}"
)


class Point(Protocol):
    """An arm in a plot: `loss` over `page_bits`; `loses_to` names a better one."""

    @property
    def label(self) -> str: ...
    @property
    def page_bits(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def loses_to(self) -> str | None: ...


def page(results: Mapping[str, Sequence[Figures]]) -> str:
    """A plot and a table for each data set; needs no network."""
    parts = [_head("Codecs", "Rate and distortion")]
    for name, arms in results.items():
        loss = "NMSE" if arms[0].attention_kl is None else "attention KL, nats"
        parts.append(
            Markup("<h2>{}</h2><p>{}s, inputs {}. Lower left is better.</p>").format(
                name, arms[0].role, arms[0].digest
            )
        )
        parts += [pareto(arms, loss), _figures(arms, loss)]
    roles = {arms[0].role for arms in results.values()}
    legends = [*(loses_to("codec", losses(role)) for role in sorted(roles)), INPUTS]
    parts += [Markup("<p>{}</p>").format(legend) for legend in legends]
    return str(Markup("\n").join(parts)) + "\n"


def arms_page(model: str, texts: Sequence[str], arms: Sequence[Row]) -> str:
    """The plot and the table of arms in a model's forward pass; needs no network."""
    loss = "next-token KL, nats"
    told = Markup("<p>{}, texts {}. Lower left is better.</p>").format(model, ", ".join(texts))
    head = ("arm", "page bits", "all-in bits", loss, "worst text", "perplexity", "loses to")
    body = [
        (
            f"{number}: {arm.label}",
            f"{arm.page_bits:.3f}",
            f"{arm.all_in_bits:.3f}",
            f"{arm.kl:.4g}",
            f"{arm.worst:.4g}",
            f"{arm.perplexity_rise:+.2%}",
            arm.loses_to or "",
        )
        for number, arm in enumerate(arms, 1)
    ]
    # Names of arms are long: the plot has their numbers in the table.
    points = [replace(arm, arm=str(number)) for number, arm in enumerate(arms, 1)]
    legend = Markup("<p>{}</p>").format(loses_to("arm", loss))
    parts = [_head("Arms", "Rate and predictions"), told, pareto(points, loss), _table(head, body)]
    parts.append(legend)
    return str(Markup("\n").join(parts)) + "\n"


def _head(title: str, heading: str) -> Markup:
    return Markup(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{}</title>"
        "<style>{}</style><h1>{}</h1>"
    ).format(title, Markup(_STYLE), heading)


def pareto(arms: Sequence[Point], loss: str) -> Markup:
    """Page bits against loss: every arm a named point, those that lose to none joined."""
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.add_subplot()
    shown = [arm for arm in arms if arm.page_bits < 16 and arm.loss > 0]
    front = [arm for arm in shown if arm.loses_to is None]
    axes.plot([a.page_bits for a in front], [a.loss for a in front], color="#2563a8", zorder=1)
    for arm in shown:
        best = arm.loses_to is None
        colour = "#2563a8" if best else "#8a8a8a"
        axes.scatter(arm.page_bits, arm.loss, s=22 if best else 12, color=colour, zorder=2)
        axes.annotate(
            arm.label,
            (arm.page_bits, arm.loss),
            textcoords="offset points",
            xytext=(4, 3),
            fontsize=7,
            color=colour,
        )
    axes.set_yscale("log")
    axes.set_xlabel("page bits a value")
    axes.set_ylabel(loss)
    axes.grid(visible=True, alpha=0.3)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return Markup(re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S))


def _figures(arms: Sequence[Figures], loss: str) -> Markup:
    head = ("codec", "page bits", "all-in bits", "NMSE", loss, "loses to")
    rows = [
        (
            arm.label,
            f"{arm.page_bits:.3f}",
            f"{arm.all_in_bits:.3f}",
            f"{arm.nmse:.4g}",
            f"{arm.loss:.4g}",
            arm.loses_to or "",
        )
        for arm in arms
    ]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(escape(cell)) for cell in row)
        )
        for row in rows
    )
    titles = Markup("").join(Markup("<th>{}</th>").format(title) for title in head)
    return Markup("<table><tr>{}</tr>{}</table>").format(titles, body)
