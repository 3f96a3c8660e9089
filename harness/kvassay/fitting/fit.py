"""The measurements of a fit: losses on texts to choose by, and the choice on other texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import reduce
from multiprocessing import get_context
from operator import add
from pathlib import Path

from ..arms import Outcome, parse_arm, rows
from ..arms.running import loaded, run
from ..errors import InputError
from ..profiles import Promise
from .candidates import Choice
from .losses import Errors, Losses, errors_of, losses, probes

#: Called with the name of each piece of work that has ended.
Ended = Callable[[str], None]


def pieces(layers: int, texts: Sequence[str]) -> int:
    """Pieces of work of `measured_losses`."""
    return len(texts) * (layers + 1)


def measured_losses(
    model: str,
    layers: int,
    texts: Sequence[str],
    tokens: int,
    answers: Path | None,
    jobs: int,
    ended: Ended,
) -> Losses:
    """Losses of all candidates of a model by name or path, over texts by name.

    answers: records of probes, which are not measured again. jobs: processes.
    """
    arms = [parse_arm(one) for one in probes(layers)]
    found: list[Outcome] = []
    for outcome in run(model, arms, texts, tokens, answers, jobs):
        found.append(outcome)
        ended(f"{outcome.arm}, {outcome.text}")
    errors: list[Errors] = []
    for text, one in _errors(model, texts, tokens, jobs):
        errors.append(one)
        ended(f"every codec, {text}")
    return losses(found, reduce(add, errors))


def _errors(
    model: str, texts: Sequence[str], tokens: int, jobs: int
) -> Iterator[tuple[str, Errors]]:
    if jobs == 1:
        yield from ((text, errors_of(loaded(model), text, tokens)) for text in texts)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as executor:
        calls = {executor.submit(one_text, model, text, tokens): text for text in texts}
        yield from ((calls[call], call.result()) for call in as_completed(calls))


def one_text(model: str, text: str, tokens: int) -> Errors:
    """Errors of all candidates on a text, in a process of its own."""
    return errors_of(loaded(model), text, tokens)


def confirm(
    model: str,
    choices: Sequence[Choice],
    texts: Sequence[str],
    tokens: int,
    answers: Path | None,
    jobs: int,
    ended: Ended,
) -> list[Promise]:
    """What choices do on texts by name; arguments as of `measured_losses`."""
    arms = [parse_arm(text) for text in dict.fromkeys(choice.arm for choice in choices)]
    found: list[Outcome] = []
    for outcome in run(model, arms, texts, tokens, answers, jobs):
        found.append(outcome)
        ended(f"confirming, {outcome.text}")
    return [_promise(one.arm, found, tuple(texts), tokens) for one in choices]


def _promise(arm: str, outcomes: Sequence[Outcome], texts: tuple[str, ...], tokens: int) -> Promise:
    (row,) = rows([one for one in outcomes if one.arm == arm])
    if row.kl_low is None or row.kl_high is None:
        raise InputError(f"fit: {tokens} tokens are too few for an interval; give more")
    return Promise(
        texts=texts,
        tokens=tokens,
        positions=row.positions,
        page_bits=row.page_bits,
        all_in_bits=row.all_in_bits,
        kl=row.kl,
        kl_low=row.kl_low,
        kl_high=row.kl_high,
        worst=row.worst,
        perplexity_rise=row.perplexity_rise,
        top1=row.top1,
    )
