"""What other programs read: JSON Schema of records, JUnit XML, a summary in Markdown."""

from __future__ import annotations

import dataclasses
import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from synthetic import TARGET, good_records, make, question

from kvassay.cli import run
from kvassay.errors import RecordError
from kvassay.judging.gate import Question, judge
from kvassay.judging.rules import rulebook
from kvassay.records import RECORD_SCHEMA, Record
from kvassay.report.junit import render_junit
from kvassay.report.markdown import render_markdown
from kvassay.running.machine import availability_records, machine_record

SCHEMA: dict[str, Any] = json.loads((files("kvassay") / "record.schema.json").read_text("utf-8"))
BAD = make(
    "parity.mismatches", 7.0, subject="a|b `c` <d>", reproduce="kvassay parity --x",
    detail={"error": "died\x07 of _it_"},
)  # fmt: skip


def is_valid(line: str) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(line)))


def test_the_schema_is_sound_and_of_the_version_that_is_read() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"]["const"] == RECORD_SCHEMA
    assert SCHEMA["$id"].endswith(f":{RECORD_SCHEMA}")
    fields = dataclasses.fields(Record)
    assert set(SCHEMA["properties"]) == {f.name for f in fields}
    optional = {name for name, item in SCHEMA["properties"].items() if "default" in item}
    assert set(SCHEMA["required"]) == {f.name for f in fields} - optional


def test_every_record_that_is_written_is_valid() -> None:
    values = [0.0, -1.5, 1e300, float("nan"), float("inf"), float("-inf")]
    records = [*good_records(), machine_record(), *availability_records(), BAD]
    records += [make("quality.x", value, detail={"by": [value]}) for value in values]
    for record in records:
        assert is_valid(record.to_json()), record


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"suite": 3},
        {"value": "many"},
        {"comparisons": -1},
        {"detail": []},
        {"nonsense": 1},
        {"unit": None},
    ],
)
def test_what_is_no_record_is_not_valid(change: dict[str, Any]) -> None:
    good = json.loads(BAD.to_json())
    assert is_valid(json.dumps(good))
    assert not is_valid(json.dumps({**good, **change}))
    if change != {"comparisons": -1}:  # the reader leaves counts to the rules
        with pytest.raises(RecordError):
            Record.from_json(json.dumps({**good, **change}))


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def cases(text: str) -> dict[tuple[str, str], str]:
    """(class, rule) of each case with the tag of its result."""
    root = ElementTree.fromstring(text)
    return {
        (case.attrib["classname"], case.attrib["name"]): next((c.tag for c in case), "passed")
        for case in root.iter("testcase")
    }


def test_junit_has_a_case_a_rule_and_no_skip_that_looks_like_a_pass() -> None:
    records = [r for r in good_records() if r.check != "memory.peak_ratio"]
    asked = Question("default", (TARGET,), ("turbo", "kivi"))
    text = render_junit(judge([*records, BAD], asked))
    found = cases(text)
    who = "reference/scalar turbo"
    assert len(found) == 2 * len(rulebook().rules)
    assert found[who, "parity.mismatches"] == "failure"
    assert found[who, "memory.peak_ratio"] == "error"
    assert found[who, "correctness.bias_z"] == "passed"
    assert found[who, "browser.mismatches"] == "skipped"
    assert found["reference/scalar kivi", "memory.peak_ratio"] == "skipped"
    root = ElementTree.fromstring(text)
    tags = list(found.values())
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(root.attrib[attribute]) == tags.count(tag)
    assert int(root.attrib["tests"]) == len(tags)
    (failure,) = (f for f in root.iter("failure") if "kivi" not in str(f.text))
    assert failure.text is not None
    assert "again: kvassay parity --x" in failure.text
    assert "\x07" not in text


def test_junit_of_nothing_is_an_error() -> None:
    text = render_junit(judge([], question()))
    assert cases(text)["kvassay", "gate"] == "error"
    assert int(ElementTree.fromstring(text).attrib["errors"]) >= 1


def test_markdown_says_the_verdict_and_escapes_what_it_quotes() -> None:
    records = [*good_records(), BAD, machine_record()]
    text = render_markdown(judge(records, question()), records)
    assert text.startswith("## kvassay: REJECT\n")
    assert "| reference/scalar | turbo | REJECT |" in text
    assert r"a\|b \`c\` \<d\>" in text
    assert "  `kvassay parity --x`\n" in text
    assert "What would change it" in text
    assert "Held to a baseline" not in text
    assert "\n\n\n" not in text


def test_markdown_names_what_is_worse_than_the_baseline() -> None:
    worse = make("run.regressions", 1.0, subject="wasm.fuel append", stage="math",
                 detail={"before": 100.0, "after": 110.0, "state": "regressed"})  # fmt: skip
    records = [*good_records(), worse]
    text = render_markdown(judge(records, question()), records)
    assert "Held to a baseline: 1 figures." in text
    assert "- reference/scalar turbo wasm.fuel append: 100, now 110\n" in text


def test_the_gate_writes_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = make("run.request", 1, preset="", detail=question().to_detail())
    lines = [r.to_json() + "\n" for r in [request, *good_records()]]
    Path("r.jsonl").write_text("".join(lines), encoding="utf-8")
    assert run(["gate", "--from", "r.jsonl", "--junit", "j.xml", "--markdown", "s.md"]) == 0
    assert cases(Path("j.xml").read_text(encoding="utf-8"))
    assert Path("s.md").read_text(encoding="utf-8").startswith("## kvassay: PASS\n")
    assert run(["gate", "--from", "r.jsonl", "--junit", "no/j.xml"]) == 2
