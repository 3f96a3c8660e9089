"""What commands print, by rendering it: at 60, 80 and 120 columns, and in a pipe."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from synthetic import good_records, make, question

from kvassay import registry
from kvassay.cli import run
from kvassay.cli.compare import grown
from kvassay.cli.parts import terminal
from kvassay.cli.parts.commands import command_names
from kvassay.cli.parts.plain_table import PlainTable
from kvassay.cli.parts.tables import print_judgement, print_variants
from kvassay.judging.gate import Judgement, judge
from kvassay.judging.rules import rulebook
from kvassay.judging.wording import figure
from kvassay.protocol import Availability

WIDTHS = (60, 80, 120)


def rendered(judgement: Judgement, width: int, **options: bool) -> list[str]:
    stream = io.StringIO()
    print_judgement(Console(file=stream, width=width, highlight=False), judgement, **options)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def judged() -> Judgement:
    """One rule rejects, one is not measured, the others pass or do not apply."""
    records = [r for r in good_records() if r.check != "memory.rss_slope"]
    records.append(make("correctness.identity_accepted", 7.0, subject="seed"))
    return judge(records, question())


def rules_of(lines: list[str]) -> list[str]:
    """The rows of the table of rules, joined where a cell goes on in the next line."""
    start = lines.index("Rules")
    rule = next(i for i, line in enumerate(lines) if i > start and "───" in line)
    body = lines[rule + 1 :]
    return body[: next(i for i, line in enumerate(body) if not line.strip())]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_rule_shows_its_verdict(width: int) -> None:
    judgement = judged()
    rows = rules_of(rendered(judgement, width))
    text = "\n".join(rows)
    assert all(row.strip() for row in rows)
    assert max(map(len, rows)) <= width
    verdict = judgement.verdicts[0]
    for state in ("pass", "reject", "not measured"):
        wanted = len(verdict.named(state))
        words = r"\s+".join(rf"1 {state}".split()) if width >= 80 else state.split()[0]
        assert len(re.findall(words, text)) >= wanted > 0, (state, text)


def test_narrow_terminals_do_without_whom_and_how_many() -> None:
    heads = {
        width: next(line for line in rendered(judged(), width) if line.startswith(" rule"))
        for width in WIDTHS
    }
    shown = {width: "n" in head.split() for width, head in heads.items()}
    assert shown == {60: False, 80: False, 120: True}


def test_rules_that_say_nothing_are_one_line_unless_asked_for() -> None:
    judgement = judged()
    silent = [*judgement.verdicts[0].named("does not apply")]
    silent += judgement.verdicts[0].named("outside scope")
    brief, whole = (
        "\n".join(rendered(judgement, 120)),
        "\n".join(rendered(judgement, 120, verbose=True)),
    )
    assert f"{len(silent)} rules do not apply or are out of scope (-v shows them)" in brief
    for name in silent:
        assert name not in brief
        assert name in whole


def test_a_run_that_was_stopped_shows_what_ran() -> None:
    records = [r for r in good_records() if r.check in ("parity.mismatches", "run.target")]
    lines = rendered(judge(records, question()), 100, interrupted=True)
    assert len(rules_of(lines)) == 1
    left = len(rulebook().rules) - 1
    assert f"{left} rules were not measured before the run was stopped" in lines


@pytest.mark.parametrize("width", WIDTHS)
def test_brackets_are_text(width: int) -> None:
    """`pip install 'kvassay[wasm]'` lost its brackets to markup."""
    detail = {"status": "missing-package", "reason": "pip install 'kvassay[wasm]'"}
    record = make("run.availability", 0.0, detail=detail, preset="", stage="")
    stream = io.StringIO()
    print_variants(Console(file=stream, width=width), judged(), [record])
    assert "'kvassay[wasm]'" in re.sub(r"\s+", " ", stream.getvalue())
    table = PlainTable("what")
    table.add_row("[bold]not markup[/] [0, 1]")
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    assert "[bold]not markup[/] [0, 1]" in stream.getvalue()


def test_the_list_of_backends_keeps_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = Availability("missing-package", "wasmtime: pip install 'kvassay[wasm]'")
    monkeypatch.setattr(registry, "backends", lambda: {"wasm": {"simd128": state}})
    assert run(["list"]) == 0
    assert "'kvassay[wasm]'" in capsys.readouterr().out


@pytest.mark.parametrize(("asked", "width"), [("60", 60), ("140", 140), ("", 100), ("x", 100)])
def test_a_pipe_heeds_columns(monkeypatch: pytest.MonkeyPatch, asked: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", asked)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert terminal.output().width == width


def test_what_repeats_several_records_stands_once() -> None:
    bad = [
        make("correctness.identity_accepted", 7.0, subject=f"case {n}", reproduce=again)
        for n, again in enumerate(("kvassay run a:b", "kvassay run a:b", "kvassay run c:d"))
    ]
    lines = rendered(judge([*good_records(), *bad], question()), 120)
    found = [line.strip() for line in lines if line.strip().startswith(("again:", "reference/sca"))]
    assert [line for line in found if "again" in line or "case" in line] == [
        "reference/scalar turbo case 0: 7 u, n = 10",
        "reference/scalar turbo case 1: 7 u, n = 10",
        "again: kvassay run a:b",
        "reference/scalar turbo case 2: 7 u, n = 10",
        "again: kvassay run c:d",
    ]


def test_a_figure_has_the_digits_that_its_bound_needs() -> None:
    """0.97999 stood beside `>= 0.98` as 0.98, and was rejected."""
    rule = rulebook().rule("retrieval.recall")
    assert figure(0.979999, rule) == "0.979999"
    assert figure(0.98 - 1e-12, rule) == f"{0.98 - 1e-12:.17g}"
    assert [figure(0.979999), figure(0.98, rule), figure(0.5, rule)] == ["0.98", "0.98", "0.5"]
    bad = make("quality.tiny_top1", 0.8999999, subject="seed", stage="tiny transformer")
    judgement = judge([*good_records(), bad], question())
    lines = "\n".join(rendered(judgement, 120))
    assert lines.count("0.8999999") == 2  # in the table, and below it


def test_one_rule_is_a_rule_and_not_some() -> None:
    judgement = judged()
    silent = {*judgement.verdicts[0].named("does not apply")}
    silent |= {*judgement.verdicts[0].named("outside scope")}
    kept = [rule for rule in judgement.rules if rule.name not in silent]
    (one, *_) = (rule for rule in judgement.rules if rule.name in silent)
    said = rendered(replace(judgement, rules=(*kept, one)), 120)
    assert "1 rule does not apply or is out of scope (-v shows it)" in said


def test_growth_is_a_factor_where_percents_say_nothing() -> None:
    assert [grown(2.0, 3.0), grown(4.0, 3.0)] == ["+50.0%", "-25.0%"]
    assert grown(1e-9, 1.85) == "x 1.85e+09"
    assert [grown(0.0, 3.0), grown(0.0, 0.0)] == ["+3", "-"]


def test_help_has_words_for_values(capsys: pytest.CaptureFixture[str]) -> None:
    for name in set(command_names()) - {"run"}:
        assert run([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert "<list" not in said, name
        assert "{" not in said, name


def test_a_price_without_a_shape_does_not_ask_for_query_heads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan"]) == 2
    said = capsys.readouterr().err
    assert "--kv-heads" in said
    assert "--query-heads" not in said
