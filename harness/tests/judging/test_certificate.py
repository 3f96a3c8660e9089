"""Certificates: written for a pass alone, and every change of what they rest on is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import TARGET, good_records, make, question

from kvassay.backend.sources import code_digest
from kvassay.cli import run
from kvassay.judging import certificate as module
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.running.machine import describe_target
from kvassay.suite import Target

Capture = pytest.CaptureFixture[str]


def records(*more: Record) -> list[Record]:
    request = make("run.request", 1, preset="", detail=question().to_detail())
    build = {"exact": True, "build_id": "abc", "evidence": {}}
    declared = make("run.target", 1.0, stage="", preset="", detail=build)
    facts = {"kvassay": "0.1.0", "processor": "a CPU"}
    machine = make("run.machine", 1.0, stage="", preset="", detail=facts)
    return [request, declared, machine, *good_records()[1:], *more]


def write(path: Path, found: list[Record]) -> Path:
    path.write_text("".join(r.to_json() + "\n" for r in found), encoding="utf-8")
    return path


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """A certificate beside its records."""
    source = write(tmp_path / "results.jsonl", records())
    out = tmp_path / "certificate.json"
    assert run(["certify", str(source), "--out", str(out), "--by", "somebody"]) == 0
    return out


def test_a_certificate_says_what_the_pass_rests_on(certified: Path, capsys: Capture) -> None:
    data = json.loads(certified.read_text(encoding="utf-8"))
    assert data["signed_off_by"] == "somebody"
    assert data["question"]["scope"] == "default"
    assert data["builds"] == [["reference", "scalar", "abc"]]
    assert [v["decision"] for v in data["verdicts"]] == ["PASS"]
    assert len(data["records"]["sha256"]) == len(data["rules_sha256"]) == 64
    assert run(["verify", str(certified)]) == 0
    assert "not checked build of reference/scalar" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (make("parity.mismatches", 1.0, subject="x"), "REJECT"),
        (make("parity.mismatches", 0.0, n=0, subject="x"), "NOT MEASURED"),
    ],
)
def test_nothing_but_a_pass_is_certified(
    tmp_path: Path, capsys: Capture, more: Record, status: str
) -> None:
    source = write(tmp_path / "r.jsonl", records(more))
    assert run(["certify", str(source), "--out", str(tmp_path / "c.json")]) == 2
    assert f"not a pass, so not certified: {status}" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()


def test_a_wider_scope_must_be_measured_to_be_certified(tmp_path: Path) -> None:
    source = write(tmp_path / "r.jsonl", records())
    out = str(tmp_path / "c.json")
    assert run(["certify", str(source), "--out", out, "--scope", "full"]) == 2


def test_records_that_changed_are_found(certified: Path, capsys: Capture) -> None:
    source = certified.with_name("results.jsonl")
    source.write_text(source.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert run(["verify", str(certified)]) == 1
    out = capsys.readouterr().out
    assert "differs     records: certified" in out
    assert "holds       verdicts, judged again" in out


@pytest.mark.parametrize(
    "change",
    [
        {"signed_off_by": "another"},
        {"builds": []},
        {"verdicts": []},
        {"rules_sha256": "0" * 64},
    ],
)
def test_a_certificate_that_changed_is_found(
    certified: Path, capsys: Capture, change: dict[str, Any]
) -> None:
    data = {**json.loads(certified.read_text(encoding="utf-8")), **change}
    certified.write_text(json.dumps(data), encoding="utf-8")
    assert run(["verify", str(certified)]) == 1
    assert "differs     the certificate itself" in capsys.readouterr().out


def test_rules_that_changed_are_found(
    certified: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "rules_digest", lambda: "1" * 64)
    assert run(["verify", str(certified)]) == 1
    assert "differs     rules" in capsys.readouterr().out


def _reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    del data["sha256"]
    path.write_text(json.dumps({**data, "sha256": module._seal(data)}), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["builds"].clear(), "builds"),
        (lambda c: c["builds"][0].__setitem__(2, "other"), "builds"),
        (lambda c: c["builds"][0].__setitem__(1, "avx2"), "builds"),
        (lambda c: c["question"].update(depth="full"), "question: depth"),
        (lambda c: c["question"].update(presets=["kivi"]), "question: presets"),
        (lambda c: c["question"].update(more=1), "question: more"),
        (lambda c: c["records"].update(count=1), "records: count"),
        (lambda c: c["records"].update(schema=True), "records: schema"),
        (lambda c: c["machine"].update(processor="Z80"), "machine: processor"),
        (lambda c: c["machine"].clear(), "machine: processor"),
        (lambda c: c.update(kvassay="9.9"), "kvassay"),
        (lambda c: c["verdicts"][0].update(variant="avx2"), "verdicts, judged again"),
        (lambda c: c["verdicts"][0].update(stage="browser"), "verdicts, judged again"),
    ],
)
def test_a_certificate_sealed_again_must_still_follow_from_the_records(
    certified: Path, capsys: Capture, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    _reseal(certified, change)
    assert run(["verify", str(certified)]) == 1
    out = capsys.readouterr().out
    assert "holds       the certificate itself" in out
    assert f"differs     {said}" in out


def test_records_that_cannot_be_judged_differ(certified: Path, capsys: Capture) -> None:
    source = certified.with_name("results.jsonl")
    source.write_text(source.read_text(encoding="utf-8") + "{}\n", encoding="utf-8")
    assert run(["verify", str(certified)]) == 1
    assert "verdicts, judged again: cannot be judged" in " ".join(capsys.readouterr().out.split())


BACKEND = """import extra
from helping import Base
class Mine(Base):
    pass
"""
HELPING = "from kvassay_backends.reference import ReferenceBackend\nclass Base(ReferenceBackend):\n"


@pytest.mark.parametrize("swapped", ["nothing", "helping.py", "mine.py", "extra.py", "fast.so"])
def test_code_that_was_swapped_is_found_where_no_build_id_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """A class of the folder one works in, what it imports from there, and a library beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [name for name in sys.path if name])
    (tmp_path / "mine.py").write_text(BACKEND)
    (tmp_path / "helping.py").write_text(f"{HELPING}    build_id = ''\n")
    (tmp_path / "extra.py").write_text("SCALE = 1\n")
    (tmp_path / "fast.so").write_bytes(b"code")
    name = "mine:Mine"

    def forget() -> None:
        for module_name in ("mine", "helping", "extra"):
            sys.modules.pop(module_name, None)
        code_digest.cache_clear()

    forget()
    sys.path.insert(0, "")
    made = describe_target(name, "scalar")
    sys.path.remove("")
    forget()
    asked = replace(question(), targets=(Target(name, "scalar"),))
    request = make("run.request", 1, preset="", detail=asked.to_detail())
    mine = [replace(record, backend=name) for record in good_records()[1:]]
    source = write(tmp_path / "r.jsonl", [request, *made, *mine])
    assert run(["certify", str(source), "--by", "me"]) == 0
    assert made[0].detail["sources"].startswith("sources ")
    if swapped != "nothing":
        with (tmp_path / swapped).open("a") as stream:
            stream.write("\n# other\n")
    assert run(["verify", "certificate.json", "--installed"]) == (swapped != "nothing")
    forget()


def test_code_that_nothing_identifies_is_not_approved(tmp_path: Path, capsys: Capture) -> None:
    found = [
        replace(r, detail={"build_id": ""}) if r.check == "run.target" else r for r in records()
    ]
    source = write(tmp_path / "r.jsonl", found)
    out = str(tmp_path / "c.json")
    assert run(["certify", str(source), "--by", "me", "--out", out]) == 0
    assert run(["verify", out]) == 0
    assert run(["verify", out, "--installed"]) == 2
    assert "not checked build of reference/scalar" in capsys.readouterr().out


@pytest.mark.parametrize(("build", "status"), [("abc", 0), ("other", 1)])
def test_builds_installed_here_can_be_asked_for(
    certified: Path, monkeypatch: pytest.MonkeyPatch, build: str, status: int
) -> None:
    class Found:
        build_id = build

    def load(name: str, variant: str) -> Backend:
        assert (name, variant) == (TARGET.backend, TARGET.variant)
        return Found()  # type: ignore[return-value]

    monkeypatch.setattr(module, "load", load)
    assert run(["verify", str(certified), "--installed"]) == status


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a certificate"),
        ("{}", "`kvassay certify` writes one"),
        ('{"certificate": 9}', "certificate 9, this kvassay reads 1"),
        ('{"certificate": 1}', "the certificate has no 'builds'"),
        ("[" * 100_000, "nested deeper"),
        ('{"certificate": ' + "[" * 90 + "]" * 90 + "}", "nested deeper"),
        ('{"certificate": 1, "certificate": 1}', "'certificate' stands twice"),
    ],
)
def test_what_is_no_certificate_is_refused(
    tmp_path: Path, capsys: Capture, text: str, message: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(text, encoding="utf-8")
    assert run(["verify", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_certificate_without_its_records_is_not_checked(certified: Path, capsys: Capture) -> None:
    certified.with_name("results.jsonl").unlink()
    assert run(["verify", str(certified)]) == 2
    assert "no records at" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [None, 3, [], {}, "x", True, [None], [[None, 1, 2]]])
def test_fields_of_another_type_are_named(certified: Path, capsys: Capture, wrong: Any) -> None:
    """Refused, or found to differ: never a traceback, which would be exit status 1 as well."""
    for name in json.loads(certified.read_text(encoding="utf-8")):
        before = certified.read_bytes()
        _damage(certified, name, wrong)
        assert run(["verify", str(certified)]) in (1, 2)
        said = capsys.readouterr()
        assert "differs" in said.out or "error: " in said.err, name
        certified.write_bytes(before)


def _damage(path: Path, name: str, wrong: Any) -> None:
    data = {**json.loads(path.read_text(encoding="utf-8")), name: wrong}
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize("name", ["", "..", "/etc/passwd", "a/b", None])
def test_a_certificate_names_no_file_elsewhere(certified: Path, name: Any) -> None:
    _reseal(certified, lambda c: c["records"].update(name=name))
    assert run(["verify", str(certified)]) == 2
