"""`kvassay capture`: queries, keys and values of a model run, in a file to judge backends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import InputError
from ..model_names import DEFAULT_MODEL, TINY
from ..writing import check_outputs, is_stream
from .parts.completing import complete_captured_models
from .parts.progress import counting
from .parts.terminal import Verbose, errors, output

if TYPE_CHECKING:
    from ..models import Model, Tokens

#: Where the text of the quality suite begins in CPython's help topics.
_OFFSET: Final = 20_000


def capture_tensors(
    out: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    model: Annotated[
        str,
        typer.Option(
            help="smollm2-135m, a GGUF file, or tiny-gqa, tiny-mha, tiny-mqa.",
            autocompletion=complete_captured_models,
        ),
    ] = DEFAULT_MODEL,
    text: Annotated[
        Path | None,
        typer.Option(help="UTF-8 text to run over (default: part of CPython's help topics)."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="At most so many tokens.")] = 1024,
    layer: Annotated[
        list[int] | None, typer.Option("--layer", help="A layer; repeatable; default all.")
    ] = None,
    verbose: Verbose = False,
) -> int:
    """Write q, k and v of a full-precision run, with an identity record, for `gate --tensors`."""
    from ..captured import Layer, open_captured, provenance_of, write_captured
    from ..models import capture

    given = {"--text": text, "--model": Path(model)}
    check_outputs({"captured tensors": out}, given)
    loaded, ids = _run_of(model, text, tokens)
    chosen = sorted(set(layer)) if layer else list(range(loaded.config.layers))
    for number in chosen:
        if not 0 <= number < loaded.config.layers:
            raise InputError(f"no layer {number}: {model} has {loaded.config.layers}")
    with counting(1, f"pass over {len(ids)} tokens", errors()) as ended:
        found = capture(loaded, ids)
        ended(loaded.config.name)
    layers = {n: Layer(found.q[n], found.k[n], found.v[n]) for n in chosen}
    write_captured(out, provenance_of(found.config, found.digest), layers)
    said = f"{found.config.name}, {len(ids)} tokens, {len(chosen)} layers, text {found.digest[:12]}"
    if not is_stream(out):  # what was written can be read again
        written = open_captured(out)
        written.check_values()
        said += f", file {written.digest[:12]}"
    output().print(f"captured: {out} ({said})", markup=False, soft_wrap=True)
    return 0


def _run_of(name: str, text: Path | None, tokens: int) -> tuple[Model, Tokens]:
    """The model and the tokens to run it over."""
    from ..models import load, tiny, tiny_tokens, topics_tokens

    if name in TINY:
        if text is not None:
            raise InputError(f"{name} has no tokenizer: it takes no --text")
        return tiny(name.removeprefix("tiny-")), tiny_tokens(tokens)  # type: ignore[arg-type]
    model = load(name)
    if text is None:
        return model, topics_tokens(model, tokens, _OFFSET)
    try:
        words = text.read_text(encoding="utf-8")
    except ValueError as error:
        raise InputError(f"{text}: not UTF-8 ({error})") from None
    ids = model.tokenizer.encode(words)[:tokens]
    if not len(ids):
        raise InputError(f"{text}: no token in it")
    return model, ids
