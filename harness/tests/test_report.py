"""The report is one file that needs nothing else and says what the records say."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic import good_records, make, question

from kvassay.gate import judge
from kvassay.machine import availability_records, machine_record
from kvassay.records import Record
from kvassay.report import render, write_report
from kvassay.report.plots import Plot, plots

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
    drawn = [kl, error, memory, slope, *steps, roof]
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
    with pytest.raises(FileNotFoundError):
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


def test_a_figure_without_comparisons_is_not_drawn() -> None:
    empty = [replace(r, comparisons=0) for r in measured() if r.suite == "performance"]
    assert plots(empty) == []
