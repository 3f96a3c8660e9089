"""What is read is evidence or is refused: forms, domains, totals, the question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import PRESET, TARGET, good_records, make, question, task

from kvassay.cli import run
from kvassay.errors import RecordError
from kvassay.judging.compare import regression_records
from kvassay.judging.evidence import RAN, end_record, read_run
from kvassay.judging.gate import Question, judge
from kvassay.judging.rules import parse_rules, rulebook
from kvassay.records import Record
from kvassay.running.resuming import done_record
from kvassay.running.runner import execute

Capture = pytest.CaptureFixture[str]
GOOD = make("parity.mismatches", 0.0)


def line(**changes: Any) -> str:
    return json.dumps({**json.loads(GOOD.to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(comparisons=-1), "no count"),
        (line(comparisons=2.5), "not a whole number"),
        (line(comparisons=5.0), "not a whole number"),
        (line(comparisons="5"), "not a whole number"),
        (line(comparisons=True), "not a whole number"),
        (line(comparisons=1 << 63), "no count"),
        (line(value="0.0"), "not a number"),
        (line(value=None), "not a number"),
        (line(value=False), "not a number"),
        (line(value=10**400), "too large"),
        (line(schema=True), "record schema True"),
        (line(schema=1.0), "record schema 1.0"),
        (line(suite=""), "suite is empty"),
        (line(subject=None), "subject is None"),
        (line(detail=[]), "detail is"),
        (line()[:-1] + ', "value": 0}', "'value' stands twice"),
        (line(detail={"a": 1}).replace('{"a": 1}', '{"a": 1, "a": 2}'), "'a' stands twice"),
        (line(value=float("nan")), "NaN is no JSON"),
        (line(detail={"x": float("inf")}), "Infinity is no JSON"),
        (line(unit="\ud800"), "surrogate"),
        (line().replace('"detail": {}', '"detail": {"x": ' + "[" * 70 + "]" * 70 + "}"), "nested"),
        ("[" * 100_000, "nested"),
        (json.dumps({k: v for k, v in json.loads(line()).items() if k != "unit"}), "no field"),
    ],
)
def test_a_line_that_means_no_one_thing_is_refused(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Record.from_json(text, "r.jsonl:1")
    assert Record.from_json(line()) == GOOD


@pytest.mark.parametrize("value", [-3.0, float("-inf")])
def test_counts_do_not_cancel(value: float) -> None:
    """3 and -3 faults are no zero faults, whatever is counted."""
    for rule in rulebook().rules:
        if rule.statistic == "sum":
            both = [make(rule.check, -value, subject="a"), make(rule.check, value, subject="b")]
            with pytest.raises(RecordError, match="cannot be measured"):
                judge([*good_records(), *both], question())


@pytest.mark.parametrize(
    ("check", "value"),
    [
        ("quality.attention_kl", -0.5),
        ("quality.tiny_top1", 1.5),
        ("quality.tiny_top1", float("inf")),
        ("memory.peak_ratio", -1.0),
        ("memory.unbilled_bytes", float("-inf")),
        ("correctness.bias_z", -9.0),
    ],
)
def test_what_no_measurement_gives_does_not_pass(check: str, value: float) -> None:
    rule = rulebook().rule(check)
    bad = make(check, value, subject=rule.subject)
    with pytest.raises(RecordError, match=f"{check} of .* cannot be measured"):
        judge([*good_records(), bad], question())
    judge([*good_records(), replace(bad, comparisons=0)], question())  # it measured nothing


def test_a_kl_may_be_below_zero_by_rounding_and_nan_rejects() -> None:
    low = make("quality.attention_kl", -1e-12, subject="all layers")
    assert judge([*good_records(), low], question()).exit_status == 0
    nan = make("quality.attention_kl", float("nan"), subject="all layers")
    assert judge([*good_records(), nan], question()).exit_status == 1


def test_a_task_that_measures_the_impossible_is_an_error_of_its_own() -> None:
    bad = task("measure", records=[make("parity.mismatches", -1.0)])
    assert "cannot be measured" in execute(bad).error


def test_possible_values_of_a_rule_are_checked() -> None:
    text = """version = 1
stages = []
[[rule]]
name = "a.b"
title = "t"
check = "a.b"
statistic = "max"
max = 0
unit = "u"
scope = "default"
reason = "r"
date = 2026-01-01
remedy = "m"
possible = """
    assert parse_rules(text + "[0, inf]").rules[0].possible == (0, float("inf"))
    for wrong in ("[1, 0]", "[0]", '["a", 1]', "3", "[false, true]"):
        with pytest.raises(RecordError, match="possible must be"):
            parse_rules(text + wrong)


# --- totals ---------------------------------------------------------------------------------------


def whole() -> list[Record]:
    """The records of a run as the runner leaves them: two tasks, a conclusion, the end."""
    request = make("run.request", 1, preset="", detail=question().to_detail())
    good = [record for record in good_records() if record.check != "run.errors"]
    found = [request]
    for name, mine in (("a", good[:5]), ("b", good[5:])):
        found += [*mine, done_record(task(name), len(mine), 1.0, "")]
    found.append(make("run.errors", 0.0, n=2, stage="", preset="", subject=RAN))
    found.append(make("quality.task_kl", 0.01, subject="chat"))
    return [*found, end_record(found)]


def write(path: Path, found: list[Record]) -> Path:
    path.write_text("".join(r.to_json() + "\n" for r in found), encoding="utf-8")
    return path


def test_no_record_can_be_dropped_doubled_or_added(tmp_path: Path) -> None:
    found, path = whole(), tmp_path / "r.jsonl"
    assert read_run(write(path, found)) == found
    assert run(["gate", "--from", str(path), "--report", str(tmp_path / "r.html")]) == 0
    for number, record in enumerate(found):
        for changed in (
            [*found[:number], *found[number + 1 :]],
            [*found[:number], record, *found[number:]],
        ):
            with pytest.raises(RecordError, match=r"r\.jsonl: "):
                read_run(write(path, changed))
    blocks = [*found[:1], *found[7:]]  # a whole task, counted again at the end
    with pytest.raises(RecordError, match="2 tasks, 1 are here"):
        read_run(write(path, [*blocks[:-1], end_record(blocks[:-1])]))
    with pytest.raises(RecordError, match="two questions"):
        read_run(write(path, [*found, *found]))


@pytest.mark.parametrize("command", ["certify", "gate", "explain", "compare", "baseline"])
def test_every_command_that_judges_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("r.jsonl"), whole()[:3] + whole()[4:])
    write(Path("good.jsonl"), whole())
    arguments = {
        "certify": ["certify", "r.jsonl", "--by", "me"],
        "gate": ["gate", "--from", "r.jsonl"],
        "explain": ["explain", "run.errors", "--from", "r.jsonl"],
        "compare": ["compare", "good.jsonl", "r.jsonl"],
        "baseline": ["gate", "--from", "good.jsonl", "--baseline", "r.jsonl"],
    }[command]
    assert run(arguments) == 2
    assert "it left 5 records, 4 are here" in capsys.readouterr().err


# --- the question ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "fulI"}, "no scope 'fulI'; did you mean 'full'"),
        ({"scope": None}, "cannot explain scope None"),
        ({"depth": "deep"}, "no depth 'deep'"),
        ({"presets": "turbo"}, "cannot explain presets 'turbo'"),
        ({"presets": [1]}, "presets"),
        ({"targets": [["reference"]]}, "targets"),
        ({"targets": ["ab"]}, "targets"),
        ({"judge_named": "no"}, "judge_named"),
        ({"newer": True}, "cannot explain newer True"),
    ],
)
def test_a_question_that_cannot_be_explained_is_not_answered(
    change: dict[str, Any], message: str
) -> None:
    request = make("run.request", 1, preset="", detail={**question().to_detail(), **change})
    with pytest.raises(RecordError, match=message):
        judge([request, *good_records()])


def test_a_suite_without_a_record_is_no_pass() -> None:
    asked = Question("default", (TARGET,), (PRESET,), suites=("nonsense",))
    judgement = judge(good_records(), asked)
    assert judgement.exit_status == 2
    assert "'nonsense' was asked for, and there is no record of it" in judgement.problem


@pytest.mark.parametrize(
    ("detail", "message"),
    [({"exact": "false"}, "exact"), ({"evidence": []}, "evidence"), ({"build_id": 3}, "build_id")],
)
def test_what_a_backend_declares_is_of_its_type(detail: dict[str, Any], message: str) -> None:
    declared = make("run.target", 1.0, stage="", preset="", detail=detail)
    with pytest.raises(RecordError, match=message):
        judge([declared, *good_records()[1:]], question())


def test_a_backend_declares_itself_once() -> None:
    other = make("run.target", 1.0, stage="", preset="", detail={"exact": False})
    with pytest.raises(RecordError, match="declared twice"):
        judge([*good_records(), other], question())


# --- a baseline of some suites --------------------------------------------------------------------


def test_a_baseline_asks_only_for_figures_of_the_suites_asked_for() -> None:
    fuel = make("wasm.fuel", 0.5, detail={"instructions": 100})
    good = [r for r in good_records() if r.check != "run.regressions"]
    asked = Question("default", (TARGET,), (PRESET,), suites=("correctness",), baseline="b")
    assert regression_records([fuel], good, asked) == []
    assert judge(good, asked).exit_status == 0
    tracked = replace(asked, suites=("correctness", "memory"))
    (lacking,) = regression_records([fuel], good, tracked)
    judgement = judge([*good, lacking], tracked)
    assert judgement.exit_status == 2
    (outcome,) = (o for o in judgement.verdicts[0].outcomes if o.rule.name == "run.regressions")
    assert "the baseline b has no tracked figure of it" in outcome.note


@pytest.mark.parametrize("wrong", ["many", [1], {"a": 1}, True])
def test_a_tracked_figure_that_is_no_number_is_named(wrong: Any) -> None:
    bad = make("wasm.fuel", 0.5, detail={"instructions": wrong})
    with pytest.raises(RecordError, match="instructions is"):
        regression_records([bad], [bad], question(baseline="b"))


def test_a_baseline_whose_figure_is_no_number_compares_nothing() -> None:
    bad = make("wasm.fuel", 0.5, detail={"instructions": "nan"})
    now = make("wasm.fuel", 0.5, detail={"instructions": 100})
    (record,) = regression_records([bad], [now], question(baseline="b"))
    assert (record.comparisons, record.detail["state"]) == (0, "missing")
