"""`kvassay fit`: a profile for a model, what its caches store by layer."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import InputError
from ..model_names import DEFAULT_MODEL
from ..writing import check_outputs
from .arms import texts_of
from .parts.completing import complete_models
from .parts.options import AnswersPath
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, errors, output

if TYPE_CHECKING:
    from ..fitting import Choice, Losses, Target
    from ..models import Model
    from ..profiles import Profile, Promise

#: How often more bits are tried for a loss that was missed.
_TRIES: Final = 3


def fit(
    model: Annotated[
        str, typer.Argument(help="smollm2-135m or a GGUF file.", autocompletion=complete_models)
    ] = DEFAULT_MODEL,
    bits: Annotated[
        list[float] | None,
        typer.Option(help="Bits a value in pages, at most; repeatable; default 3."),
    ] = None,
    bytes_: Annotated[
        int | None, typer.Option("--bytes", min=1, help="Bytes of a cache, at most.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, help="Tokens that --bytes are for.")] = 0,
    kl: Annotated[float | None, typer.Option(help="Next-token KL in nats, at most.")] = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="File to write; of several --bits a folder. Default profile.json."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the profile; default of model and target.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="A text to choose by, by name or file; repeatable; default four."),
    ] = None,
    confirm: Annotated[
        list[str] | None,
        typer.Option(help="A text to confirm on, by name or file; repeatable; default four."),
    ] = None,
    length: Annotated[int, typer.Option(min=165, help="Tokens of each text to choose by.")] = 320,
    confirm_length: Annotated[
        int, typer.Option(min=165, help="Tokens of each text to confirm on.")
    ] = 1024,
    answers: AnswersPath = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default one a core.")] = None,
    verbose: Verbose = False,
) -> int:
    """Fit a profile to a model: codecs for each layer's keys and values, confirmed on other
    text."""
    from ..fitting import Target, choose, measured_losses, pieces
    from ..models import load
    from .parts.progress import counting

    targets = [Target(bits=one) for one in bits or ()]
    if bytes_ is not None or kl is not None or tokens:
        targets.append(Target(bytes=bytes_, tokens=tokens, kl=kl))
    targets = targets or [Target(bits=3)]
    if bits and len(targets) > len(bits):
        raise InputError("fit: give one of --bits, --bytes and --kl")
    paths = _paths(profile or Path("profile.json"), targets)
    if len(paths) > 1:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
    answers = answers or paths[0].with_suffix(".jsonl")
    check_outputs({"--profile": paths[0], "--answers": answers})
    by, on = texts_of(text or [], "chosen-by"), texts_of(confirm or [], "held-out")
    if both := set(by) & set(on):
        raise InputError(f"fit: {min(both)} cannot confirm what it has chosen")
    whole = load(model)
    layers, cores = whole.config.layers, jobs or os.cpu_count() or 1
    with counting(pieces(layers, by), "probes", errors()) as ended:
        found = measured_losses(model, layers, by, length, answers, cores, ended)
    choices = [choose(found, one, whole.config.shape) for one in targets]
    measure = _Confirming(model, on, confirm_length, answers, cores)
    promises = measure(choices)
    if kl is not None:
        choices, promises = _until(measure, found, kl, whole, choices, promises)
    for target, path, choice, promise in zip(targets, paths, choices, promises, strict=True):
        made = _profile(whole, name, target, choice, promise, by, length)
        _write(path, made, choice)
    return 0


class _Confirming:
    """Measures choices on the texts to confirm on."""

    def __init__(
        self, model: str, texts: Sequence[str], tokens: int, answers: Path, jobs: int
    ) -> None:
        self._how = texts, tokens, answers, jobs
        self._model = model

    def __call__(self, choices: Sequence[Choice]) -> list[Promise]:
        from ..fitting import confirm
        from .parts.progress import counting

        texts, tokens, answers, jobs = self._how
        several = len({choice.arm for choice in choices})
        with counting(len(texts) * several, "confirmations", errors()) as ended:
            return confirm(self._model, choices, texts, tokens, answers, jobs, ended)


def _until(
    measure: _Confirming,
    found: Losses,
    kl: float,
    model: Model,
    choices: list[Choice],
    promises: list[Promise],
) -> tuple[list[Choice], list[Promise]]:
    """More bits while the loss on the other texts is above what was asked for."""
    from ..fitting import Target, choose

    for _ in range(_TRIES):
        (choice,), (promise,) = choices, promises
        if promise.kl <= kl:
            break
        wanted = kl * choice.predicted / promise.kl
        choices = [choose(found, Target(kl=wanted), model.config.shape)]
        promises = measure(choices)
    return choices, promises


def _paths(path: Path, targets: Sequence[Target]) -> list[Path]:
    if len(targets) == 1:
        return [path]
    return [path.with_suffix("") / f"{one.bits or 0:g}.json" for one in targets]


def _profile(
    model: Model,
    name: str | None,
    target: Target,
    choice: Choice,
    promise: Promise,
    texts: Sequence[str],
    length: int,
) -> Profile:
    from .._version import __version__
    from ..models import norms_of
    from ..presets import combined
    from ..profiles import DECIDES, ModelIdentity, Profile

    config = model.config
    spec = combined(choice.fields, config.shape).to_dict()
    slug = re.sub(r"[^a-z0-9._-]+", "-", config.name.lower()).strip("-._") or "model"
    return Profile(
        name=name or f"{slug}/{promise.page_bits:.2f}",
        target=str(target),
        model=ModelIdentity(
            config.name,
            config.model_hash,
            norms_of(model),
            *(config.layers, config.kv_heads, config.query_heads, config.head_dim),
        ),
        fields={name: value for name, value in spec.items() if name in DECIDES},
        promise=promise,
        provenance={
            "made_by": f"kvassay {__version__}",
            "chosen_by": f"{', '.join(texts)}: {length} tokens each",
            "predicted_kl": f"{choice.predicted:.3g}",
        },
    )


def _write(path: Path, made: Profile, choice: Choice) -> None:
    from ..profiles import write_profile

    write_profile(path, made)
    titles = ("layer", "keys", "values")
    shown = PlainTable(*titles, right=titles)
    for layer, (keys, values) in enumerate(zip(choice.keys, choice.values, strict=True)):
        shown.add_row(str(layer), keys.arm, values.arm)
    output().print(shown)
    one = made.promise
    for line in (
        f"{made.name}: asked for {made.target}",
        f"  KL {one.kl:.4f} ({one.kl_low:.4f} to {one.kl_high:.4f}) nats at {one.page_bits:.3f}"
        f" bits in pages, perplexity {one.perplexity_rise:+.2%}, top 1 {one.top1:.3f}; on"
        f" {', '.join(one.texts)}",
        f"  written to {path}; use: kvassay.profile('{path}')",
    ):
        output().print(line, markup=False, soft_wrap=True)
