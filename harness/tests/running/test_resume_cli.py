"""`--answers` and `--dask` on the command line, and presets with changed fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from synthetic import TARGET, FakeSuite, good_records, make, task

from kvassay.cli import run
from kvassay.cli.parts import selecting
from kvassay.errors import SpecError
from kvassay.presets import preset
from kvassay.records import Record, read_records

GATE = ("gate", "--backend", TARGET.backend, "--preset", "turbo", "--jobs", "1")
SHAPE = {"layers": 1, "kv_heads": 1, "query_heads": 1, "head_dim": 64}


@dataclass
class Concluding(FakeSuite):
    """A suite that counts its records when all is done."""

    def conclude(self, records: Sequence[Record]) -> list[Record]:
        mine = [record for record in records if record.suite == self.name]
        return [make("quality.count", float(len(mine)))]


@pytest.fixture(autouse=True)
def suites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    records = [r for r in good_records() if r.suite != "run"]
    names = sorted({r.suite for r in records} - {"quality"})
    found: dict[str, FakeSuite] = {
        name: FakeSuite(name, [task("measure", records=[r for r in records if r.suite == name])])
        for name in names
    }
    mine = [[r] for r in records if r.suite == "quality"]
    found["quality"] = Concluding("quality", [task("measure", records=one) for one in mine])
    monkeypatch.setattr(selecting, "suites", lambda: found)
    monkeypatch.chdir(tmp_path)


def measured(path: str = "results.jsonl") -> list[Record]:
    return [record for record in read_records(path) if record.suite != "run"]


def test_a_second_run_takes_its_answers_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    status = run([*GATE, "--answers", "answers.jsonl", "--quiet"])
    first, kept = measured(), Path("answers.jsonl").read_bytes()
    assert len(kept.splitlines()) > 5

    def never(*arguments: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("kvassay.running.runner.execute", never)
    monkeypatch.setattr("kvassay.running.runner.IsolatedPool", never)
    assert run([*GATE, "--answers", "answers.jsonl", "--quiet"]) == status == 0
    assert sorted(r.to_json() for r in measured()) == sorted(r.to_json() for r in first)
    assert Path("answers.jsonl").read_bytes() == kept


def test_what_a_suite_concludes_rests_on_all_its_records() -> None:
    assert run([*GATE, "--quiet"]) == 0
    (count,) = (r for r in measured() if r.check == "quality.count")
    assert count.value == sum(r.suite == "quality" for r in measured()) - 1 > 3


def test_a_file_that_holds_no_answers_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("notes\n")
    assert run([*GATE, "--answers", "notes.txt", "--quiet"]) == 2
    assert "notes.txt:1: not an answer" in capsys.readouterr().err
    assert Path("notes.txt").read_text() == "notes\n"


def test_a_cluster_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvassay.running.cluster._CONNECT_SECONDS", 0.2)
    assert run([*GATE, "--dask", "tcp://127.0.0.1:9", "--quiet"]) == 2
    assert "error: --dask: " in capsys.readouterr().err


def test_a_preset_may_change_fields() -> None:
    spec = preset("turbo,keys=turbo:4,values=turbo:4,window=32", **SHAPE)
    assert (spec.keys, spec.values, spec.window, spec.sinks) == ("turbo:4", "turbo:4", 32, 4)
    assert selecting.choose_presets(["turbo,window=32"]) == ("turbo,window=32",)
    assert preset("turbo,window=32", **SHAPE, window=8).window == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("turb,window=32", "no preset 'turb'.*did you mean 'turbo'"),
        ("turbo,windw=32", "no field 'windw'.*did you mean 'window'"),
        ("turbo,window", "'window' must be field=value"),
        ("turbo,", "'' must be field=value"),
        ("turbo,window=1,window=2", "each field once"),
        ("turbo,window=wide", "window"),
        ("turbo,layers=3", "layers belongs to the model"),
    ],
)
def test_a_preset_that_cannot_be_is_refused(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        selecting.choose_presets([name])
