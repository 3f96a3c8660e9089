"""`kvassay arms`: what codecs and presets do to a model's predictions, at how many bits."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SpecError
from ..model_names import DEFAULT_MODEL
from ..suggest import did_you_mean
from ..writing import check_outputs, write_text
from .parts.options import AnswersPath, ArmModel
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, errors, output

if TYPE_CHECKING:
    from ..arms import Outcome, Row

_CHOICES = ("all", "chosen-by", "held-out")


def arms(
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="As 'turbo:3.5/turbo:3 window=32'; repeatable."),
    ] = None,
    ablation: Annotated[
        list[str] | None,
        typer.Option(help="Arms that vary one thing: window, sinks, page, ...; or all."),
    ] = None,
    model: ArmModel = DEFAULT_MODEL,
    text: Annotated[
        list[str] | None, typer.Option(help="A text by name; repeatable; default all eight.")
    ] = None,
    half: Annotated[
        str, typer.Option(help="all texts, those arms were chosen-by, or those held-out.")
    ] = "all",
    tokens: Annotated[int, typer.Option(min=101, help="Of each text.")] = 1024,
    answers: AnswersPath = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a page with a Pareto plot.")] = None,
    verbose: Verbose = False,
) -> int:
    """Run a model with keys and values stored by each arm: bits against next-token KL."""
    from ..arms import rows  # models and matplotlib: not for others
    from ..arms.standard import ABLATIONS, STANDARD

    check_outputs({"--answers": answers, "--plot": plot})
    given = list(arm or [])
    for name in ablation or []:
        if name != "all" and name not in ABLATIONS:
            raise SpecError(f"--ablation: no {name!r}{did_you_mean(name, ABLATIONS)}")
        given += [one for key in ABLATIONS if name in ("all", key) for one in ABLATIONS[key]]
    names = texts_of(text or [], half)
    table = rows(measured(model, given or STANDARD, names, tokens, answers, jobs))
    if json:
        sys.stdout.write(jsonlib.dumps([row.to_dict() for row in table], indent=2) + "\n")
    else:
        _print(table, names)
    if plot is not None:
        from ..distortion.plot import arms_page

        write_text("plot", plot, arms_page(model, names, table))
    return 0


def measured(
    model: str,
    arms: Sequence[str],
    texts: Sequence[str],
    tokens: int,
    answers: Path | None,
    jobs: int,
) -> list[Outcome]:
    """Outcomes of arms by their texts, each once, with how far they are on standard error."""
    from ..arms import parse_arm
    from ..arms.running import run
    from .parts.progress import counting

    chosen = [parse_arm(one) for one in dict.fromkeys(arms)]
    found: list[Outcome] = []
    with counting(len(texts) * len(chosen), "arms on texts", errors()) as ended:
        for outcome in run(model, chosen, texts, tokens, answers, jobs):
            found.append(outcome)
            ended(f"{outcome.arm}, {outcome.text}")
    return found


def texts_of(given: Sequence[str], half: str) -> list[str]:
    """Names of texts: those given, else a half of all; raises SpecError for one that is not."""
    from ..models import PASSAGES, passage

    if half not in _CHOICES:
        raise SpecError(f"--half: {half!r} is not one of {', '.join(_CHOICES)}")
    if given:
        return [passage(name).name for name in given]
    return [one.name for one in PASSAGES if half == "all" or one.held_out == (half == "held-out")]


def _print(table: Sequence[Row], texts: Sequence[str]) -> None:
    from ..distortion.legends import loses_to

    output().print(f"texts: {', '.join(texts)}; KL in nats", markup=False)
    figures = ("page bits", "all in", "KL", "worst text", "perplexity", "top 1")
    shown = PlainTable("arm", *figures, "loses to", right=figures)
    for row in table:
        shown.add_row(
            row.arm,
            f"{row.page_bits:.3f}",
            f"{row.all_in_bits:.3f}",
            f"{row.kl:.4g}",
            f"{row.worst:.4g}",
            f"{row.perplexity_rise:+.2%}",
            f"{row.top1:.3f}",
            row.loses_to or "",
        )
    output().print(shown)
    output().print(loses_to("arm", "KL"), markup=False)
