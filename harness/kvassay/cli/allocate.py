"""`kvassay allocate`: bits for each layer of a model."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..model_names import DEFAULT_MODEL
from ..writing import check_outputs
from .arms import measured, texts_of
from .parts.options import AnswersPath, ArmModel
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, output

if TYPE_CHECKING:
    from ..arms.allocation import Allocation


def allocate(
    bits: Annotated[
        list[float] | None,
        typer.Option(min=2, max=4, help="Mean over keys, values, layers; repeatable; default 3.25"),
    ] = None,
    model: ArmModel = DEFAULT_MODEL,
    text: Annotated[
        list[str] | None, typer.Option(help="A text by name; repeatable; default manual, textwrap.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=101, help="Of each text.")] = 512,
    answers: AnswersPath = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    verbose: Verbose = False,
) -> int:
    """Bits for each layer's keys and values of a model, by what each alone costs."""
    from ..arms.allocation import allocate as of
    from ..arms.allocation import losses, probes

    check_outputs({"--answers": answers})
    names = texts_of(text or ["manual", "textwrap"], "all")
    layers = layers_of(model)
    found = losses(measured(model, probes(layers), names, tokens, answers, jobs), layers)
    made = [of(found, mean) for mean in bits or [3.25]]
    if json:
        told = [
            {"mean_bits": one.mean_bits, "predicted_kl": one.predicted, "uniform_kl": one.uniform}
            | {"arm": one.arm, "spec": one.fields}
            for one in made
        ]
        sys.stdout.write(jsonlib.dumps({"losses": found, "allocations": told}, indent=2) + "\n")
        return 0
    _print(found, made)
    return 0


def layers_of(model: str) -> int:
    """Layers of a model by name or path."""
    from ..models import load

    return load(model).config.layers


def _print(found: Sequence[float], made: Sequence[Allocation]) -> None:
    titles = ("layer", "keys, KL", "values, KL", *(f"at {one.mean_bits:g}" for one in made))
    shown = PlainTable(*titles, right=titles)
    for layer in range(len(found) // 2):
        bits = [f"{one.keys[layer]:g} / {one.values[layer]:g}" for one in made]
        shown.add_row(str(layer), *(f"{kl:.2g}" for kl in found[2 * layer :][:2]), *bits)
    output().print("next-token KL of one stream of one layer at 3 bits, nats", markup=False)
    output().print(shown)
    for one in made:
        for line in (
            f"at {one.mean_bits:g} bits on average: KL {one.predicted:.2g} expected,"
            f" {one.uniform:.2g} with the same bits everywhere",
            f"  measure: kvassay arms --arm '{one.arm}'",
            f"  use: kvassay.preset('turbo', ..., **{one.fields})",
        ):
            output().print(line, markup=False, soft_wrap=True)
