"""How far work is: on terminals of 60, 80 and 120 columns, and in pipes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from synthetic import task

from kvassay.arms.outcome import Outcome
from kvassay.cli import allocate, run
from kvassay.cli.parts import progress
from kvassay.cli.parts.progress import counting, tracking, watching
from kvassay.running.runner import Answer

WIDTHS = (60, 80, 120)
LONG = "a label that is longer than any line can be " * 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that plain lines go by."""
    found = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def made(arm: str, text: str) -> Outcome:
    """Somebody's outcome."""
    counts = dict.fromkeys(("tokens", "positions", "top1"), 10)
    sums = dict.fromkeys(("kl", "kl_all", "nll", "full_nll", "page_bits", "all_in_bits"), 1.0)
    return Outcome(arm, "m", text, False, arm + text, **counts, **sums)  # type: ignore[arg-type]


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_pipe_gets_the_last_state(interrupted: bool) -> None:
    stream = io.StringIO()
    tasks = [task("measure"), task("measure"), task("measure")]
    try:
        with watching(tasks, Console(file=stream, width=80), quiet=False) as watch:
            assert watch is not None
            watch.done(tasks[0], Answer())
            watch.done(tasks[1], Answer(error="boom"))
            if interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    first, failure, last = lines_of(stream)
    assert first == "3 tasks"
    assert failure.endswith("measure (reference/scalar): boom")
    assert last == "2/3 done, 1 failed"


def test_a_pipe_hears_how_long_the_rest_takes_at_the_speed_so_far(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    tasks = [task("measure", weight=weight) for weight in (1.0, 1.0, 6.0)]
    with watching(tasks, Console(file=stream, width=80), quiet=False) as watch:
        assert watch is not None
        clock.now += 11
        watch.running(tasks)  # nothing has ended: nobody knows
        watch.done(tasks[0], Answer())
        clock.now += 9
        watch.running(tasks[1:])  # too soon to say more
        watch.done(tasks[1], Answer())
        clock.now += 10
        watch.running(tasks[2:])
    name = "quality: measure (reference/scalar)"
    assert lines_of(stream) == [
        "3 tasks",
        f"0/3 done: {name}, {name}, {name}",
        f"2/3 done, about 90 s left: {name}",
        "2/3 done",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (119, "119 s"), (121, "2 min"), (7300, "2 h")]
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert progress._in_words(seconds) == words


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bar_keeps_its_times(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    with counting(3, "tasks", console) as ended:
        ended(LONG)
    frames = [line for line in lines_of(stream) if "1/3" in line]
    assert frames
    for frame in frames:
        assert re.search(r" 33 %.*\d+:\d\d:\d\d +left +(\d+:\d\d:\d\d|-:--:--) +a lab", frame)
        assert len(re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", frame)) <= width


def test_names_are_followed_one_by_one(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    for _ in tracking(["a", "b", "c"], "codecs on noise", Console(file=stream, width=80)):
        clock.now += 60
    assert lines_of(stream) == [
        "3 codecs on noise",
        "1/3 done, about 2 min left: a",
        "2/3 done, about 60 s left: b",
        "3/3 done: c",
        "3/3 done",
    ]


def test_allocate_and_arms_say_in_a_pipe_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
) -> None:
    def slowly(model: str, arms: list[Any], texts: list[str], *_: Any) -> Iterator[Outcome]:
        for arm in arms:
            for text in texts:
                clock.now += 12
                yield made(arm.text, text)

    monkeypatch.setattr("kvassay.arms.running.run", slowly)
    monkeypatch.setattr(allocate, "layers_of", lambda model: 2)
    assert run(["allocate", "--text", "manual"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "4 arms on texts"
    assert said[1].startswith("1/4 done, about 36 s left: ")
    assert said[-1] == "4/4 done"
    assert run(["arms", "--arm", "fp16/fp16", "--text", "manual"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "1/1 done"


def test_codecs_say_in_a_pipe_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--codec", "fp16", "--data", "gaussian", "--tokens", "132", "--head-dim", "16")
    assert run(["codecs", *asked]) == 0
    assert capsys.readouterr().err.splitlines() == ["1 codecs on gaussian", "1/1 done"]
