"""A run that was stopped goes on: only what is missing is measured again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import TARGET, make, task

from kvassay.backend.sources import code_digest
from kvassay.errors import RecordError
from kvassay.records import Record
from kvassay.registry import ClassProvider, load, register, unregister
from kvassay.running import answers
from kvassay.running.answers import Answers, task_digest
from kvassay.running.runner import Answer, Summary, run
from kvassay.suite import Target, Task


def tasks(*values: float) -> list[Task]:
    return [
        replace(task("measure", records=[make("quality.a", value)]), target=None)
        for value in values
    ]


def go(path: Path, wanted: Sequence[Task], **options: Any) -> tuple[list[Record], Summary]:
    records: list[Record] = []
    with Answers(path) as kept:
        summary = run(wanted, records.extend, jobs=1, answers=kept, **options)
    return records, summary


class Labels:
    """A watch that notes what ended, and may press Ctrl-C after so many."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.seconds: list[float] = []
        self._stop_after = stop_after

    def running(self, tasks: Sequence[Task]) -> None:
        pass

    def done(self, task: Task, answer: Answer) -> None:
        self.seconds.append(answer.seconds)
        if len(self.seconds) == self._stop_after:
            raise KeyboardInterrupt


def values(records: Sequence[Record]) -> list[float]:
    return sorted(record.value for record in records if record.check == "quality.a")


def test_after_ctrl_c_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    path, wanted = tmp_path / "answers.jsonl", tasks(1.0, 2.0, 3.0, 4.0)
    records, summary = go(path, wanted, watch=Labels(stop_after=2))
    assert summary.interrupted
    assert len(values(records)) == 2  # answers that come together are taken in any order
    kept = path.read_bytes()
    assert kept.count(b"\n") == 2
    records, summary = go(path, wanted)
    assert sorted(values(records)) == [1.0, 2.0, 3.0, 4.0]
    assert not summary.interrupted
    assert path.read_bytes().startswith(kept)
    assert path.read_bytes().count(b"\n") == 4


def test_a_kept_answer_is_not_computed_again(tmp_path: Path) -> None:
    """Planted: the answer in the file is another one, and it is the one that comes back."""
    path = tmp_path / "answers.jsonl"
    (wanted,) = tasks(1.0)
    with Answers(path) as kept:
        kept.keep(wanted, [make("quality.a", 99.0)], 5.0)
    watch = Labels()
    records, summary = go(path, [wanted], watch=watch)
    assert values(records) == [99.0]
    assert (summary.done, watch.seconds) == (1, [5.0])


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    wanted = [replace(task("fail", message="m"), target=None)]
    assert go(path, wanted)[1].errors == 1
    assert path.read_bytes() == b""
    assert go(path, wanted)[1].errors == 1


def test_any_other_input_is_another_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (one,) = tasks(1.0)
    digest = task_digest(one)
    model = tmp_path / "model.gguf"
    model.write_bytes(b"weights")
    with_model = replace(one, arguments={**one.arguments, "model": str(model)})
    others = [tasks(2.0)[0], replace(one, function="synthetic:nothing"), with_model]
    others += [replace(one, target=TARGET), replace(one, target=Target("native", "scalar"))]
    digests = {task_digest(other) for other in others}
    assert len(digests | {digest}) == len(others) + 1
    assert task_digest(replace(one, label="other", weight=9.0)) == digest
    before = task_digest(with_model)
    answers._model_digest.cache_clear()
    model.write_bytes(b"other weights")
    assert task_digest(with_model) != before
    monkeypatch.setattr(answers, "code_digest", lambda package: f"changed {package}")
    assert task_digest(one) != digest


def test_somebody_elses_backend_is_always_measured(tmp_path: Path) -> None:
    register(ClassProvider("theirs", type(load("reference"))))
    try:
        theirs = replace(tasks(1.0)[0], target=Target("theirs", load("theirs").variant))
        assert task_digest(theirs) is None
    finally:
        unregister("theirs")
    assert task_digest(theirs) is None  # nor one that is not there
    with Answers(tmp_path / "answers.jsonl") as kept:
        kept.keep(theirs, [make("quality.a", 1.0)], 1.0)
        assert len(kept) == 0
        assert kept.find(theirs) is None


def test_a_torn_last_line_is_cut_and_another_bad_line_is_named(tmp_path: Path) -> None:
    path, wanted = tmp_path / "answers.jsonl", tasks(1.0, float("nan"))
    go(path, wanted)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with Answers(path) as kept:
        assert len(kept) == 1
    assert path.read_bytes() == whole[: whole.index(b"\n") + 1]
    go(path, wanted)
    assert len(path.read_bytes().splitlines()) == 2
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(RecordError, match=r"answers\.jsonl:1: not an answer .* another file"):
        Answers(path)


def test_the_digest_of_code_sees_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "measures"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.toml").write_text("a = 1")
    monkeypatch.syspath_prepend(os.fspath(tmp_path))
    digest = code_digest("measures")
    code_digest.cache_clear()
    (package / "rules.toml").write_text("a = 2")
    assert code_digest("measures") != digest
