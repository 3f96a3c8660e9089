"""The report is one file that needs nothing else and says what the records say."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic import TARGET, good_records, make, question

from kvassay.errors import WriteError
from kvassay.judging.gate import Decision, Verdict, judge
from kvassay.judging.rules import Outcome, rulebook
from kvassay.records import Record
from kvassay.report import render, write_report
from kvassay.report.matrix import Matrix
from kvassay.report.plots import Plot, plots
from kvassay.report.view import Coverage, View
from kvassay.running.again import command
from kvassay.running.machine import availability_records, machine_record
from kvassay.running.resuming import digest, done_record
from kvassay.suite import Target, Task

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Strict(HTMLParser):
    """Fails on tags that are not closed in order, and collects ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action"):
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag


def measured() -> list[Record]:
    layers = [0.001 * (n + 1) for n in range(6)]
    kl = make(
        "quality.attention_kl", 0.004, subject="all layers", stage="real model scalar",
        detail={"by_layer": layers, "layers": [0, 6, 12, 18, 24, 29]},
    )  # fmt: skip
    error = make(
        "quality.output_error", 0.1, subject="all layers", stage="real model scalar",
        detail={"by_layer": layers},
    )  # fmt: skip
    parts = {"codes": 2**21, "residual": 2**20}
    detail = {"appended": {"billed": parts}, "tokens": 4096}
    memory = make("memory.unbilled_bytes", 0.0, detail=detail)
    caches = [{"tokens": n, "billed": {"codes": 100 * n, "sinks": 0}} for n in (1024, 65536)]
    slope = make("memory.rss_slope", 0.01, detail={"caches": caches})
    steps = [
        make("performance.decode", 1.0 * n, subject=f"{n} tokens, 1 KV and 4 query heads of 64",
             detail={"tokens": n, "low": 0.9 * n, "high": 1.2 * n})
        for n in (1024, 4096)
    ]  # fmt: skip
    place = {"bytes": 1000, "operations": 4000, "seconds": 1e-6, "bandwidth": 1e10, "peak": 1e11}
    roof = make("performance.roofline", 0.1, subject="1024 tokens", detail=place)
    codecs = [
        make("correctness.distortion_ratio", 1.0, subject=f"keys {codec} d{d}", preset="",
             detail={"measured": loss, "low": 0.9 * loss, "high": 1.1 * loss, "expected": loss,
                     "page_bits": bits})
        for codec, d, bits, loss in (
            ("turbo:3", 64, 3.2, 0.04), ("turbo:2", 64, 2.2, 0.12), ("kivi:2", 64, 3.0, 0.2),
            ("turbo:2", 80, 2.2, 0.11),
        )
    ]  # fmt: skip
    bought = [
        make("quality.next_token_kl", kl, preset=preset, stage="real model scalar",
             detail={"page_bits": bits, "interval": [0.5 * kl, 2 * kl]})
        for preset, kl, bits in (("turbo", 0.01, 3.4), ("fp16", 0.0, 16.0))
    ]  # fmt: skip
    expected = {"break_even": 400.0, "payback": "inf"}
    pays = [
        make(f"performance.{name}", value, subject=f"{n} tokens",
             detail={"tokens": n, "predicted": expected})
        for n, name, value in ((1024, "break_even", float("inf")), (4096, "break_even", 500.0),
                               (1024, "payback", float("inf")), (4096, "payback", 1234.4))
    ]  # fmt: skip
    drawn = [kl, error, memory, slope, *steps, roof, *pays, *codecs, *bought]
    return [*good_records(), *drawn, machine_record(), *availability_records()]


@pytest.fixture(scope="module")
def rejected() -> str:
    """The page of a run with one mismatch."""
    bad = make(
        "parity.mismatches", 7.0, subject="<script>alert(1)</script>", reproduce="kvassay parity -v"
    )
    records = [*measured(), bad]
    return render(judge(records, question()), records)


def test_it_is_one_sound_page_without_network(rejected: str) -> None:
    parser = Strict()
    parser.feed(rejected)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    assert all(address.startswith("#") for address in parser.addresses)
    assert not re.search(r"<script|@import|url\((?!#)|<link|<img", rejected)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in rejected


def test_it_shows_verdict_evidence_and_how_to_repeat_it(rejected: str) -> None:
    assert "<h1>REJECT</h1>" in rejected
    for text in ("Why it rejects", "parity.mismatches", "kvassay parity -v", "Replay the first"):
        assert text in rejected
    for heading in ("Verdicts", "Rules and evidence", "Stages", "Support matrix", "Machine"):
        assert f"<h2>{heading}</h2>" in rejected
    assert "prefers-color-scheme: dark" in rejected
    assert "@media print" in rejected


def test_what_was_not_measured_is_listed() -> None:
    records = [r for r in good_records() if r.check != "memory.peak_ratio"]
    page = render(judge(records, question()), records)
    assert "<h1>NOT MEASURED</h1>" in page
    assert "<li><b>memory.peak_ratio</b>: every backend and preset: no record</li>" in page
    assert "<li><b>quality.chat_nll_rise</b>" in page


def test_an_empty_run_still_gives_a_page() -> None:
    page = render(judge([]), [])
    assert "<h1>NOT MEASURED</h1>" in page
    assert "nothing was measured" in page


@pytest.fixture(scope="module")
def drawn() -> dict[str, Plot]:
    return {plot.title: plot for plot in plots(measured())}


def test_plots_hold_the_figures_of_the_records(drawn: dict[str, Plot]) -> None:
    assert list(drawn) == [
        "Attention KL by layer",
        "Attention output error by layer",
        "Predictions with a cache in the loop",
        "Memory by part",
        "Memory over tokens, reference/scalar",
        "Latency over context, reference/scalar",
        "Roofline",
        "Where a preset gets faster than fp16",
        "Rate and distortion, keys",
        "Quality over bits",
    ]
    kl = drawn["Attention KL by layer"]
    assert kl.columns == ("layer", "turbo")
    assert [row[0] for row in kl.rows] == ["0", "6", "12", "18", "24", "29"]
    assert kl.rows[2] == ("12", "0.003")
    memory = drawn["Memory by part"]
    assert memory.columns == ("preset and backend", "tokens", "codes, bytes", "residual, bytes")
    assert memory.rows == (("turbo, reference/scalar", "4,096", "2,097,152", "1,048,576"),)
    grown = drawn["Memory over tokens, reference/scalar"]
    assert grown.columns == ("preset", "tokens", "codes, bytes")
    assert grown.rows == (("turbo", "1,024", "102,400"), ("turbo", "65,536", "6,553,600"))


def test_plots_are_sound_svg_in_colours_of_the_page(drawn: dict[str, Plot]) -> None:
    for plot in drawn.values():
        ElementTree.fromstring(plot.svg)
        assert "var(--ink)" in plot.svg
        assert "var(--series" in plot.svg
        assert not re.search(r"#0000[0-9c][0-9]", plot.svg)
        assert not re.search(r"<svg[^>]* (width|height)=", plot.svg)


def test_a_shared_pass_is_drawn_once() -> None:
    records = [r for r in measured() if r.check == "quality.attention_kl"]
    kl = next(r for r in records if r.check == "quality.attention_kl" and r.detail)
    detail = {**kl.detail, "shared_with": "reference scalar"}
    copy = make(kl.check, kl.value, backend="native", subject="all layers", detail=detail)
    own = make(kl.check, kl.value, backend="other", subject="all layers", detail=kl.detail)
    assert plots([*records, copy])[0].columns == ("layer", "turbo")
    assert plots([*records, own])[0].columns == ("layer", "turbo", "turbo, other/scalar")


def test_writing_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, judge([]), [])
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(WriteError, match="a folder that exists"):
        write_report(tmp_path / "no" / "report.html", judge([]), [])


def test_speed_is_drawn_from_what_was_measured() -> None:
    found = {plot.title: plot for plot in plots(measured())}
    latency = found["Latency over context, reference/scalar"]
    assert latency.columns == ("tokens", "turbo, us")
    assert latency.rows[1] == ("4,096", "4096 [3686, 4915]")
    assert "1 KV and 4 query heads of 64" in latency.caption
    roofline = found["Roofline"]
    assert roofline.rows == (("reference/scalar turbo, 1024 tokens", "1,000", "4", "4", "10.0%"),)
    assert "10 GB/s" in roofline.caption


def test_what_bits_buy_is_drawn_with_intervals(drawn: dict[str, Plot]) -> None:
    rate = drawn["Rate and distortion, keys"]
    assert "kivi" in rate.svg
    plain = [r for r in measured() if "distortion" in r.check]
    only = [replace(r, subject="keys fp16 d64") for r in plain]
    assert plots(only) == []  # nothing is compared
    assert rate.rows[2] == ("turbo:2, 80 channels", "2.200", "0.11 [0.099, 0.121]", "0.11", "10")
    bought = drawn["Quality over bits"]
    assert [row[:3] for row in bought.rows] == [
        ("fp16", "16.000", "0 [0, 0]"),
        ("turbo", "3.400", "0.01 [0.005, 0.02]"),
    ]


def test_the_break_even_is_told_measured_and_predicted(drawn: dict[str, Plot]) -> None:
    assert drawn["Where a preset gets faster than fp16"].rows == (
        ("turbo, reference/scalar, 1,024 tokens", "never", "400", "never", "never"),
        ("turbo, reference/scalar, 4,096 tokens", "500", "400", "1,234", "never"),
    )


def test_support_says_how_many_passed_were_loaded_and_exist() -> None:
    records = [r for r in measured() if r.check != "run.availability"]
    for variant in ("scalar", "other"):
        records.append(make("run.availability", 1.0, variant=variant, preset="", stage="",
                            detail={"status": "ready", "reason": ""}))  # fmt: skip
    view = View.of(judge(records, question()), records)
    assert view.coverage == (Coverage("reference", passed=1, loaded=1, total=2),)
    assert {item.variant: item.passed for item in view.support} == {
        "scalar": "1 of 1",
        "other": "-",
    }
    records.append(make("parity.mismatches", 7.0))
    view = View.of(judge(records, question()), records)
    assert view.coverage[0].passed == 0
    assert view.support[0].passed == "0 of 1"


def test_figures_that_could_not_be_given_say_why() -> None:
    reason = {"reason": "valgrind is not installed"}
    missing = [make("performance.instructions", 0.0, n=0, preset=p, detail=reason)
               for p in ("fp16", "turbo")]  # fmt: skip
    records = [*good_records(), *missing]
    found = dict(View.of(judge(records, question()), records).unmeasured)
    assert found["performance.instructions"] == "reference/scalar: valgrind is not installed"


def test_each_row_can_be_repeated_by_command_seed_and_digest() -> None:
    task = Task("quality", "t", "synthetic:measure", {"seed": 7}, target=TARGET)
    again = command(task)
    mine = [make(f"quality.{name}", 1.0, reproduce=again) for name in "ab"]
    other = make("quality.c", 1.0, reproduce="kvassay run x '{}'")
    records = [*good_records(), other, *mine, done_record(task, 2, 1.0, "b" * 64)]
    rows = {row.command: row for row in View.of(judge(records, question()), records).commands}
    row = rows[again]
    assert (row.checks, row.seed, row.build) == ("quality.a, quality.b", "7", "b" * 12)
    assert row.digest == digest(task)
    assert rows["kvassay run x '{}'"].digest == "-"
    assert rows["kvassay run x '{}'"].seed == "fixed"


def test_a_figure_without_comparisons_is_not_drawn() -> None:
    empty = [replace(r, comparisons=0) for r in measured() if r.suite == "performance"]
    assert plots(empty) == []


def verdict(target: str, preset: str, decision: Decision, role: str = "product") -> Verdict:
    backend, _, variant = target.partition("/")
    broken = Outcome(rulebook().rules[0], "reject", 1.0, 1, (), "")
    outcomes = (broken,) if decision == "REJECT" else ()
    one = Target(backend, variant)
    return Verdict(one, preset, role, decision, outcomes, "one layer", ())


def test_the_matrix_has_every_pair_and_words_only_where_backends_differ() -> None:
    found = Matrix.of(
        [
            verdict("a/x", "fp16", "PASS", "baseline"),
            verdict("a/x", "turbo", "PASS"),
            verdict("b/y", "turbo", "REJECT"),
            replace(verdict("b/z", "turbo", "PASS"), stage="tiny transformer"),
        ]
    )
    assert [column.preset for column in found.columns] == ["turbo", "fp16"]  # judged ones first
    shown = {
        row: [one.decision if one else None for one in verdicts] for row, verdicts in found.rows
    }
    assert shown == {
        "a/x": ["PASS", "PASS"],
        "b/y": ["REJECT", None],
        "b/z": ["PASS", None],
    }
    turbo, fp16 = found.columns
    assert [(one.decision, one.targets) for one in turbo.groups] == [
        ("PASS", ("a/x", "b/z")),
        ("REJECT", ("b/y",)),
    ]
    assert turbo.groups[1].rejecting == (rulebook().rules[0].name,)
    assert len(fp16.groups) == 1
