"""`kvassay codecs`: rate and distortion of every codec on the same inputs."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..writing import check_outputs, write_text
from .parts.completing import complete_codecs, complete_models
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, errors, output

if TYPE_CHECKING:
    from ..distortion import Figures


def compare(
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--codec",
            help="A codec; repeatable; default all.",
            autocompletion=complete_codecs,
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="gaussian, outliers, biased; repeatable; default all.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Also on data captured from smollm2-135m or a GGUF file; repeatable.",
            autocompletion=complete_models,
        ),
    ] = None,
    role: Annotated[str, typer.Option(help="key or value.")] = "key",
    head_dim: Annotated[int, typer.Option(help="Of the synthetic data.")] = 128,
    tokens: Annotated[int, typer.Option(min=132, help="Tokens of each data set.")] = 516,
    seed: Annotated[int, typer.Option(min=0, help="Of the synthetic data.")] = 0,
    all_rates: Annotated[
        bool, typer.Option("--all-rates", help="Fractional rates of every codec too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print the table of docs/codecs.md instead.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a page with Pareto plots.")] = None,
    verbose: Verbose = False,
) -> int:
    """Compare codecs: bits against error on the same inputs, losers printed too."""
    from ..distortion.compare import choose, data_sets  # matplotlib and models: not for others
    from ..distortion.compare import compare as arms_of
    from ..distortion.describe import table
    from ..distortion.legends import INPUTS, loses_to, losses
    from ..distortion.plot import page

    check_outputs({"--plot": plot})
    chosen = choose(name or [])
    if describe:
        sys.stdout.write(table(chosen) + "\n")
        return 0
    results = {
        one.name: arms_of(
            chosen, one, role, all_rates, _leave_out, partial(_track, f"codecs on {one.name}")
        )
        for one in data_sets(data or [], model or [], head_dim, tokens, seed)
    }
    if json:
        found = [arm.to_dict() for arms in results.values() for arm in arms]
        sys.stdout.write(jsonlib.dumps(found, indent=2) + "\n")
    else:
        for arms in results.values():
            _print(arms)
        output().print(loses_to("codec", losses(role)), markup=False)
        output().print(INPUTS, markup=False)
    if plot is not None:
        write_text("plot", plot, page(results))
    return 0


def _track(noun: str, names: Sequence[str]) -> Iterator[str]:
    from .parts.progress import tracking

    return tracking(names, noun, errors())


def _leave_out(reason: str) -> None:
    errors().print(f"left out: {reason}", markup=False, style="yellow")


def _print(arms: list[Figures]) -> None:
    first = arms[0]
    output().print(f"{first.data}, {first.role}s, inputs {first.digest}", markup=False)
    columns = _COLUMNS[first.role]
    figures = ("page bits", "all in", *columns.values())
    table = PlainTable("codec", "bits", *figures, "loses to", right=figures)
    for arm in arms:
        values: list[Any] = [getattr(arm, column) for column in columns]
        table.add_row(
            arm.codec,
            f"{arm.bits:g}",
            f"{arm.page_bits:.3f}",
            f"{arm.all_in_bits:.3f}",
            *(f"{value:.4g}" for value in values),
            arm.loses_to or "",
        )
    output().print(table)


_COLUMNS = {
    "key": {
        "nmse": "NMSE",
        "score_error": "score error",
        "attention_kl": "attention KL",
        "top10": "top 10",
    },
    "value": {"nmse": "NMSE", "cosine_error": "1 - cosine", "output_error": "output error"},
}
