"""`kvassay codecs`: rate and distortion of every codec on the same inputs."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ..distortion import KINDS, DataSet, Figures, captured, measure, synthetic
from ..distortion.describe import table as describe_table
from ..distortion.figures import check_baselines, ranked
from ..distortion.plot import page as plot_page
from ..errors import InputError, SpecError, UnavailableError
from ..suggest import did_you_mean
from ..vector_codec import ROLES, VectorCodec, codec, codecs
from .terminal import Verbose, errors, output


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("codecs")(compare)


def compare(
    name: Annotated[
        list[str] | None, typer.Option("--codec", help="A codec; repeatable; default all.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(KINDS)}; repeatable; default all.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Also on data captured from smollm2-135m or a GGUF file; repeatable."),
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
    chosen = _choose(name)
    if role not in ROLES:
        raise SpecError(f"--role: {role!r} is not one of {', '.join(ROLES)}")
    if describe:
        sys.stdout.write(describe_table(chosen) + "\n")
        return 0
    sets = [synthetic(kind, head_dim, tokens, seed=seed) for kind in data or KINDS]
    sets += [_capture(source, tokens) for source in model or ()]
    results: dict[str, list[Figures]] = {}
    for one in sets:
        made = {c.name + f" {c.bits:g}": c for c in _codecs(chosen, one.head_dim, role, all_rates)}
        if not made:
            raise InputError(f"codecs: none of {', '.join(chosen)} stores head dim {one.head_dim}")
        check_baselines(made)
        results[one.name] = ranked([measure(codec, one) for codec in made.values()])
    if json:
        found = [arm.to_dict() for arms in results.values() for arm in arms]
        sys.stdout.write(jsonlib.dumps(found, indent=2) + "\n")
    else:
        for arms in results.values():
            _print(arms)
    if plot is not None:
        plot.write_text(plot_page(results), encoding="utf-8")
    return 0


def _choose(names: list[str] | None) -> list[str]:
    known = codecs()
    for one in names or ():
        if one not in known:
            raise SpecError(f"--codec: no codec {one!r}{did_you_mean(one, known)}")
    if not known:
        raise InputError("codecs: none are installed")
    return list(names or known)


def _codecs(names: list[str], head_dim: int, role: str, all_rates: bool) -> Iterator[VectorCodec]:
    """Every rate asked for of every codec; one that cannot be made says why and is left out."""
    for name in names:
        rates = codecs()[name].rates
        for bits in sorted(r for r in rates if all_rates or r == int(r) or r == rates[0]):
            try:
                yield codec(name, head_dim=head_dim, bits=bits, role=role)
            except (SpecError, UnavailableError) as error:
                errors().print(f"left out: {error}", markup=False, style="yellow")


def _capture(source: str, tokens: int) -> DataSet:
    from ..models import load  # needs gguf and the model

    return captured(load(source), Path(source).stem, tokens)


def _print(arms: list[Figures]) -> None:
    first = arms[0]
    output().print(f"{first.data}, {first.role}s, inputs {first.digest}", markup=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("codec", "bits"):
        table.add_column(title, no_wrap=True)
    columns = _COLUMNS[first.role]
    for title in ("page bits", "all in", *columns.values()):
        table.add_column(title, justify="right")
    table.add_column("loses to", no_wrap=True)
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
