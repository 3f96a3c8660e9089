"""What every command that prints tables shows at 60, 80 and 120 columns, on a terminal and piped:
by running it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from synthetic import good_records, make
from test_progress import made

from kvassay import registry
from kvassay.cli import allocate, run
from kvassay.cli.parts.plain_table import PlainTable, fitted
from kvassay.judging.gate import Question
from kvassay.judging.rules import rulebook
from kvassay.protocol import Availability
from kvassay.records import Record
from kvassay.running import doctor
from kvassay.running.doctor import Finding
from kvassay.running.runner import opening_records
from kvassay.suite import Target

WIDTHS = (60, 80, 120)
TARGETS = (Target("reference", "scalar"), Target("native", "avx512vnni"))
PRESETS = ("turbo", "turbo-qjl", "kivi")
#: Every command that prints tables, and words that it must show at any width.
COMMANDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "list": (["list"], ("backends/build/rust_server.py", "correctness.identity_accepted")),
    "doctor": (["doctor"], ("native/avx512vnni", "'kvassay[browser]'")),
    "codecs": (
        ["codecs", "--codec", "kivi", "--data", "gaussian", "--tokens", "132", "--head-dim", "16"],
        ("bits", "KL", "kivi"),
    ),
    "arms": (["arms", "--arm", "turbo:3.5/turbo:3 window=32", "--text", "manual"], ("perplexity",)),
    "allocate": (["allocate", "--text", "manual"], ("keys,", "values,")),
    "plan": (["plan", "--layers", "30", "--kv-heads", "8", "--head-dim", "128"], ("16", "KiB")),
    "gate": (
        ["gate", "--from", "now.jsonl", "--report", "r.html"],
        ("correctness.distortion_ratio", "native/avx512vnni", "turbo-qjl", "REJECT", "control:"),
    ),
    "gate, every rule": (
        ["gate", "--from", "now.jsonl", "--report", "r.html", "-v"],
        ("quality.safety_agreement", "n/a,"),
    ),
    "explain": (["explain", "memory.rss_slope", "--from", "now.jsonl"], ("memory.rss_slope:",)),
    "compare": (["compare", "then.jsonl", "now.jsonl"], ("correctness.identity_accepted",)),
}  # fmt: skip


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two runs, and backends, tools and outcomes that cost nothing to ask."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    for name, bad in (("then", 0.0), ("now", 7.0)):
        text = "".join(record.to_json() + "\n" for record in run_of(bad))
        Path(f"{name}.jsonl").write_text(text, encoding="utf-8")
    reason = "no aarch64 standard library for Rust; run: python backends/build/rust_server.py"
    states = {"avx512vnni": Availability("ready"), "neondot": Availability("not-built", reason)}
    monkeypatch.setattr(registry, "backends", lambda: {"native": states})
    found = [
        Finding("native/avx512vnni", True, "ready", "a backend to judge", scopes=("default",)),
        Finding(
            *("playwright", False, "not installed", "Chromium in the suite browser"),
            install="pip install 'kvassay[browser]'",
        ),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)

    def outcomes(model: str, arms: list[Any], texts: list[str], *_: Any) -> Iterator[Any]:
        yield from (made(arm.text, text) for arm in arms for text in texts)

    monkeypatch.setattr("kvassay.arms.running.run", outcomes)
    monkeypatch.setattr(allocate, "layers_of", lambda model: 2)


def run_of(bad: float) -> list[Record]:
    """Two targets with three presets; one rule may reject, one is not measured."""
    records = [
        replace(record, backend=target.backend, variant=target.variant)
        for target in TARGETS
        for record in good_records()
        if record.check != "memory.rss_slope"
    ]
    spread = [
        replace(record, preset=preset)
        for record in records
        for preset in (PRESETS if record.preset else ("",))
    ]
    opening = opening_records(Question("default", TARGETS, PRESETS))
    return [*opening, *spread, make("correctness.identity_accepted", bad, subject="seed")]


def shown(monkeypatch: pytest.MonkeyPatch, words: list[str], width: int, piped: bool) -> str:
    """Standard output of a command, without colours."""
    stream = io.StringIO() if piped else Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setattr("sys.stdout", stream)
        assert run(words) in (0, 1, 2)
    plain = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    return "\n".join(line.rstrip() for line in plain.splitlines())


def words_of(text: str) -> set[str]:
    """Without what stands between the cells of a block, or before what is said below a table."""
    return {word.rstrip(",:") for word in text.split() if "─" not in word}


@pytest.mark.parametrize("piped", [False, True], ids=["terminal", "piped"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_word_is_broken(
    monkeypatch: pytest.MonkeyPatch, command: str, width: int, piped: bool
) -> None:
    words, wanted = COMMANDS[command]
    whole = words_of(shown(monkeypatch, words, 400, piped=True))
    said = shown(monkeypatch, words, width, piped)
    assert words_of(said) <= whole
    assert {word.rstrip(",:") for word in wanted} <= words_of(said)
    assert "…" not in said
    for line in said.splitlines():
        assert len(line.rstrip()) <= width or not line.startswith(" ─")


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_rules_stand_close_and_say_their_verdict(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    said = shown(monkeypatch, COMMANDS["gate"][0], width, piped=True)
    rules = said[said.index("\nRules\n") :].partition("───\n")[2].partition("\n\n")[0]
    lines = rules.splitlines()
    assert all(line.strip() for line in lines)
    known = {rule.name for rule in rulebook().rules}
    rows = [line for line in lines if line.split()[0] in known]
    assert len(rows) > 20
    for row in rows:
        assert re.search(r" \d (pass|not|n/a)", row), row


def test_a_table_that_does_not_fit_becomes_blocks() -> None:
    table = PlainTable("name", "figure", "note", title="Things", right=("figure",))
    table.add_row("a-name-of-sixteen", "1.25", "[0, 1] is no markup")
    table.add_row("another", "2", "")
    wide, narrow = io.StringIO(), io.StringIO()
    Console(file=wide, width=60).print(table)
    Console(file=narrow, width=28).print(table)
    assert [line.rstrip() for line in wide.getvalue().splitlines()] == [
        "Things",
        "",
        " name               figure  note",
        " ──────────────────────────────────────────────",
        " a-name-of-sixteen    1.25  [0, 1] is no markup",
        " another                 2",
        "",
    ]
    assert [line.rstrip() for line in narrow.getvalue().splitlines()] == [
        "Things",
        "",
        "a-name-of-sixteen",
        "  figure 1.25, note [0, 1]",
        "  is no markup",
        "another",
        "  figure 2",
        "",
    ]
    with pytest.raises(ValueError, match="1 cells for 3 columns"):
        table.add_row("a")


def test_columns_get_what_their_words_need_and_share_the_rest() -> None:
    columns = (["ab"], ["ab cd ef gh"], ["ab cd ef"])
    assert fitted(columns, 100) == [2, 11, 8]
    assert fitted(columns, 14) == [2, 6, 6]
    assert fitted(columns, 6) == [2, 2, 2]
    assert fitted(columns, 5) is None
    assert fitted(["x" * 50], 40) == [1]
    assert fitted([["x" * 50]], 40) == [40]
