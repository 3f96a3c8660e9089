"""A run of arms over texts that can be interrupted, and spread over processes or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from ..models import Model, load
from ..records import RecordWriter
from .arm import Arm
from .forward import measure
from .outcome import Outcome, read_outcomes

#: What an interruption may lose, against a pass of full precision that each call repeats.
_ARMS_A_CALL: Final = 8


def run(
    model: str,
    arms: Sequence[Arm],
    texts: Sequence[str],
    tokens: int = 1024,
    answers: Path | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
) -> Iterator[Outcome]:
    """Outcomes of arms on texts as they come, kept in `answers`, whose outcomes are not repeated.

    model: a name or path, loaded in each process. executor: any of `concurrent.futures`, which
    gets a text and some arms a call; without one, `jobs` processes, and none but this one for a
    single job.
    """
    known = read_outcomes(answers) if answers else {}
    with RecordWriter(answers, append=True) if answers else nullcontext() as writer:
        for outcome in _outcomes(model, arms, texts, tokens, known, jobs, executor):
            if writer is not None and outcome.digest not in known:
                writer.write([outcome.to_record()])
            yield outcome


def _outcomes(
    model: str,
    arms: Sequence[Arm],
    texts: Sequence[str],
    tokens: int,
    known: dict[str, Outcome],
    jobs: int,
    executor: Executor | None,
) -> Iterator[Outcome]:
    if executor is None and jobs == 1:
        yield from measure(loaded(model), arms, texts, tokens, known)
        return
    # Spawned, not forked: the threads of numpy's BLAS do not survive a fork.
    made = executor or ProcessPoolExecutor(jobs, get_context("spawn"))
    with nullcontext(made) if executor else made:
        calls = [
            made.submit(one_text, model, arms[start : start + _ARMS_A_CALL], text, tokens, known)
            for text in texts
            for start in range(0, len(arms), _ARMS_A_CALL)
        ]
        for call in as_completed(calls):
            yield from call.result()


def one_text(
    model: str, arms: Sequence[Arm], text: str, tokens: int, known: dict[str, Outcome]
) -> list[Outcome]:
    """Some arms on a text, in a process that keeps the model for the next."""
    return list(measure(loaded(model), arms, [text], tokens, known))


@lru_cache(maxsize=1)
def loaded(model: str) -> Model:
    """A model by name or path, kept for the next call in this process."""
    return load(model)
