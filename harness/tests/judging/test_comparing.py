"""Two runs side by side, and the gate that holds a run to a baseline."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from synthetic import PRESET, TARGET, good_records, make, question

from kvassay.cli import run
from kvassay.errors import RecordError
from kvassay.judging.compare import Comparison, follow, regression_records
from kvassay.judging.gate import Question, judge
from kvassay.judging.tracks import Track, Tracks, parse_tracks, tracks
from kvassay.records import Record, read_records
from kvassay.report.comparison import render_comparison
from kvassay.suite import Target

Capture = pytest.CaptureFixture[str]
DAY = datetime.date(2026, 11, 30)
EXACT = Track("wasm.fuel", "instructions", "exact", 0.01, "r", DAY)
RATIO = Track("performance.time", "ratios", "ratio", 0.03, "r", DAY)
BOOK = Tracks((EXACT, RATIO), 0.01, 0.10, 0.95)
STEADY = [1.0 + 0.002 * (n % 7) for n in range(40)]


def fuel(count: float | None, subject: str = "append", **fields: Any) -> Record:
    detail = {} if count is None else {"instructions": count}
    return make("wasm.fuel", 0.5, subject=subject, detail=detail, **fields)


def timed(factor: float, subject: str = "decode", pairs: int = 40) -> Record:
    ratios = [factor * value for value in STEADY[:pairs]]
    return make("performance.time", 9.0, subject=subject, detail={"ratios": ratios})


def run_of(*records: Record) -> list[Record]:
    request = make("run.request", 1, preset="", detail=question().to_detail())
    return [request, *good_records(), *records]


def write(path: Path, records: list[Record]) -> str:
    path.write_text("".join(r.to_json() + "\n" for r in records), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (1000, 1010, "unchanged"),
        (1000, 1011, "regressed"),
        (1000, 980, "improved"),
        (0, 1, "regressed"),
        (0, 0, "unchanged"),
        (1000, float("nan"), "regressed"),
        (1000, None, "missing"),
        (None, 1000, "new"),
    ],
)
def test_an_exact_counter_is_held_to_its_tolerance(
    before: float | None, after: float | None, state: str
) -> None:
    (change,) = follow([fuel(before)], [fuel(after)], BOOK)
    assert change.state == state
    assert (change.comparisons > 0) == (state != "missing")


def test_a_record_without_comparisons_counts_as_missing() -> None:
    (change,) = follow([fuel(5)], [fuel(5, n=0)], BOOK)
    assert (change.state, change.comparisons) == ("missing", 0)


@pytest.mark.parametrize(
    ("factor", "state"), [(1.0, "unchanged"), (1.1, "regressed"), (0.9, "improved")]
)
def test_ratios_are_held_by_ranks(factor: float, state: str) -> None:
    (change,) = follow([timed(1.0)], [timed(factor)], BOOK)
    assert change.state == state
    assert change.after == pytest.approx(1.006 * factor, rel=1e-3)
    assert "now" in change.note


def test_too_few_pairs_say_nothing() -> None:
    (change,) = follow([timed(1.0)], [timed(1.5, pairs=9)], BOOK)
    assert (change.state, change.comparisons) == ("missing", 0)


def test_regression_records_follow_the_question() -> None:
    other = Target("native", "avx2")
    before = [fuel(100), fuel(100, "elsewhere", backend="native", variant="avx2"),
              fuel(100, "kivi", preset="kivi")]  # fmt: skip
    after = [fuel(150)]
    found = regression_records(before, after, question(baseline="b"))
    assert [(r.subject, r.value, r.comparisons) for r in found] == [("wasm.fuel append", 1.0, 10)]
    both = Question("default", (TARGET, other), (PRESET,), baseline="b")
    found = regression_records(before[:1], after, both)
    assert [(r.backend, r.comparisons) for r in found] == [("reference", 10), ("native", 0)]
    assert "has no tracked figure" in found[1].detail["error"]


def test_the_rule_judges_them_and_binds_only_runs_held_to_a_baseline() -> None:
    asked = question(baseline="b.jsonl")

    def decision(records: list[Record]) -> str:
        plain = [r for r in good_records() if r.check != "run.regressions"]
        return judge([*plain, *records], asked).verdicts[0].decision

    def held(before: Record, after: Record) -> list[Record]:
        return regression_records([before], [after], asked)

    assert decision(held(fuel(100), fuel(100))) == "PASS"
    assert decision(held(fuel(100), fuel(200))) == "REJECT"
    assert decision(held(fuel(100), fuel(None))) == "NOT MEASURED"
    assert decision([]) == "NOT MEASURED"
    assert judge(good_records(), question()).exit_status == 0


def test_the_gate_fails_on_a_regression_and_says_which(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = write(tmp_path / "base.jsonl", run_of(fuel(100)))
    same = write(tmp_path / "same.jsonl", run_of(fuel(100)))
    worse = write(tmp_path / "worse.jsonl", run_of(fuel(110)))
    empty = write(tmp_path / "empty.jsonl", [])
    assert run(["gate", "--from", same, "--baseline", base]) == 0
    capsys.readouterr()
    assert run(["gate", "--from", worse, "--baseline", base]) == 1
    out = capsys.readouterr().out
    assert "run.regressions sum <= 0 figures: No worse than the baseline" in out
    assert "reference/scalar turbo wasm.fuel append: 1 figures" in out
    assert run(["gate", "--from", worse, "--baseline", worse]) == 0
    assert run(["gate", "--from", same, "--baseline", empty]) == 2
    assert run(["gate", "--from", same, "--baseline", str(tmp_path / "none.jsonl")]) == 2


def test_compare_prints_what_changed_and_the_status(tmp_path: Path, capsys: Capture) -> None:
    base = write(tmp_path / "a.jsonl", run_of(fuel(100), make("quality.note", 1.0, subject="x")))
    worse = run_of(fuel(150), make("quality.note", 2.0, subject="x"),
                   make("parity.mismatches", 3.0, subject="new"))  # fmt: skip
    after = write(tmp_path / "b.jsonl", worse)
    page = tmp_path / "c.html"
    assert run(["compare", base, after, "--report", str(page)]) == 1
    out = capsys.readouterr().out
    assert "worse: reference/scalar turbo: parity.mismatches: pass, now reject" in out
    assert "worse: reference/scalar turbo: wasm.fuel append" in out
    assert "+50.0%" in out
    assert "quality.note: reference/scalar turbo x" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100
    text = page.read_text(encoding="utf-8")
    assert "<h1>REGRESSION</h1>" in text
    assert "http" not in text
    assert run(["compare", base, base]) == 0
    assert run(["compare", write(tmp_path / "none.jsonl", []), base]) == 2


def test_what_controls_lose_is_shown_and_not_judged() -> None:
    detail = Question("default", (TARGET,), ("turbo", "kivi")).to_detail()
    request = make("run.request", 1, preset="", detail=detail)
    before = [request, *good_records(), fuel(100, preset="kivi")]
    after = [*before[:-1], fuel(200, preset="kivi")]
    found = Comparison.of(before, after)
    assert [c.state for c in found.changes if c.record.preset == "kivi"] == ["regressed"]
    assert found.regressions == []
    assert found.exit_status == 0


def test_machines_and_builds_that_differ_are_named() -> None:
    def machine(processor: str, build: str) -> list[Record]:
        facts = {"processor": processor, "packages": {"numpy": "2"}, "flags": ["avx2"]}
        return [
            make("run.machine", 2, preset="", detail=facts),
            make("run.target", 1, preset="", detail={"build_id": build}),
            *good_records()[1:],
        ]

    found = Comparison.of(machine("old", "aa"), machine("new", "aa"))
    assert found.surroundings == (("processor", "old", "new"),)
    other = Comparison.of(machine("old", "aa"), machine("old", "bb"))
    assert other.surroundings == (("build of reference/scalar", "aa", "bb"),)
    assert "build of reference/scalar" in render_comparison(other, ("a", "b"))


def test_the_shipped_tracks_follow_checks_of_rules_or_suites() -> None:
    book = tracks()
    assert (book.false_alarms, book.slowdown, book.power) == (0.01, 0.1, 0.95)
    assert {"wasm.fuel", "quality.next_token_kl"} <= {track.check for track in book.tracks}
    assert all(0 <= track.tolerance <= 0.1 for track in book.tracks)


HEAD = "[baseline]\nfalse_alarms = 0.01\nslowdown = 0.1\npower = 0.9\n[[track]]\n"
GOOD = 'check = "a.b"\nfigure = "value"\nkind = "exact"\ntolerance = 0\nreason = "r"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD.replace("0.01", "2.0"), "false_alarms must be a number between 0 and 1"),
        (HEAD.replace("power = 0.9", ""), "power must be a number between 0 and 1"),
        (f"{HEAD}{GOOD}", "date must be a date"),
        (f"{HEAD}{GOOD}date = 2026-01-01\nfigur = 1\n", "unknown field 'figur'"),
        (HEAD + GOOD.replace("exact", "rough"), "kind must be one of exact, ratio"),
        (HEAD + GOOD.replace("= 0", "= -1"), "tolerance must be"),
        (HEAD + GOOD.replace('"value"', "3"), "figure must be a text"),
        ("[", "not TOML"),
    ],
)
def test_a_track_that_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        parse_tracks(text)


def test_a_baseline_named_anew_replaces_what_an_earlier_one_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = make("run.regressions", 1.0, subject="wasm.fuel append")
    held = make("run.request", 1, preset="", detail=question(baseline="old.jsonl").to_detail())
    path = write(tmp_path / "r.jsonl", [held, *good_records(), fuel(100), old])
    assert run(["gate", "--from", path]) == 1
    assert run(["gate", "--from", path, "--baseline", path]) == 0
    assert old in list(read_records(path))
