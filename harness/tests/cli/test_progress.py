"""How far work is: on terminals of 60, 80 and 120 columns, and in pipes."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from synthetic import task

from kvassay.arms.outcome import Outcome
from kvassay.cli import allocate, run
from kvassay.cli.parts import forecast, progress
from kvassay.cli.parts.forecast import Evenly, Expected
from kvassay.cli.parts.progress import counting, tracking, watching
from kvassay.running.runner import Answer

WIDTHS = (60, 80, 120)
LONG = "a label that is longer than any line can be " * 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that plain lines go by."""
    found = SimpleNamespace(now=100.0)
    for module in (progress, forecast):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now))
    monkeypatch.setattr(progress, "_BEAT", 1e6)
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
        with watching(tasks, Console(file=stream, width=80), quiet=False, jobs=2) as watch:
            assert watch is not None
            watch.done(tasks[0], Answer())
            watch.done(tasks[1], Answer(error="boom"))
            if interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    first, failure, last = lines_of(stream)
    assert first == "3 tasks, about 2 s"
    assert failure.endswith("measure (reference/scalar): boom")
    assert last == "2/3 done, 1 failed"


def test_a_pipe_hears_how_long_the_rest_takes(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    tasks = [task("measure", weight=weight) for weight in (10.0, 10.0, 60.0)]
    with watching(tasks, Console(file=stream, width=80), quiet=False, jobs=2) as watch:
        assert watch is not None
        clock.now += 11
        watch.running(tasks[:2])
        watch.done(tasks[0], Answer(seconds=30.0))
        clock.now += 9
        watch.running(tasks[1:])  # too soon to say more
        watch.done(tasks[1], Answer(seconds=30.0))
        clock.now += 10
        watch.running(tasks[2:])
        clock.now += 20
        watch.running(tasks[2:])  # the same as before, and not long ago
        clock.now += 6
        watch.running(tasks[2:])
    name = "quality: measure (reference/scalar)"
    assert lines_of(stream) == [
        "3 tasks, about 40 s",
        f"0/3 done, about 40 s left: {name}, {name}",
        f"2/3 done, about 65 s left: {name}",
        f"2/3 done, about 52 s left: {name}",
        "2/3 done",
    ]


def test_an_estimate_is_never_wild() -> None:
    """At the speed of the first short tasks, which start a process, this run took two hours."""
    short = [task("measure", weight=0.1) for _ in range(20)]
    long = [task("measure", weight=10.0) for _ in range(30)]
    found = Expected([*short, *long], jobs=2)
    assert found.left() == pytest.approx(151.0)
    for one in short:
        found.end(one, 0.5)
    assert 150 < found.left() < 2 * 151
    for one in long:
        found.end(one, 10.0)
    assert found.left() == pytest.approx(0.0)


def test_an_estimate_knows_suites_and_who_runs_alone() -> None:
    slow, fast = task("measure", weight=10.0), task("measure", weight=10.0)
    other = replace(slow, suite="memory")
    alone = replace(other, alone=True)
    found = Expected([slow, fast, other, alone], jobs=2)
    assert found.left() == pytest.approx(25.0)
    found.end(slow, 50.0)
    assert found.left() == pytest.approx(10 * 3 / 2 + 10 / 2 + 10)
    found.running([fast, other, alone, slow])
    assert found.left() == pytest.approx(10 * 3 / 4 + 10 / 4 + 10)


def test_nobody_knows_how_long_equal_pieces_take_before_one_has_ended(
    clock: SimpleNamespace,
) -> None:
    found = Evenly(4)
    assert found.left() is None
    clock.now += 30
    found.end()
    assert found.left() == 90


def test_a_piece_that_takes_long_is_heard_of(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    """Until then a pipe heard nothing of `allocate --jobs 2` for minutes."""
    monkeypatch.setattr(progress, "_BEAT", 0.001)
    stream = io.StringIO()
    with counting(3, "arms", Console(file=stream, width=80)) as ended:
        clock.now += 26
        for _ in range(10_000):
            if len(lines_of(stream)) > 1:
                break
            time.sleep(0.001)
        ended("a")
    assert lines_of(stream) == ["3 arms", "0/3 done", "1/3 done"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (119, "119 s"), (121, "2 min"), (7300, "2 h")]
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert progress.in_words(seconds) == words


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bar_keeps_its_times(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    with counting(3, "tasks", console) as ended:
        ended(LONG)
    frames = [line for line in lines_of(stream) if "1/3" in line]
    assert frames
    for frame in frames:
        assert re.search(r" 33 %.*\d+:\d\d:\d\d +(about \d+ s|\?) left +a lab", frame)
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
