"""Certificates: written for a pass alone, and every change of what they rest on is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic import TARGET, good_records, make, question

from kvassay.cli import run
from kvassay.judging import certificate as module
from kvassay.protocol import Backend
from kvassay.records import Record

Capture = pytest.CaptureFixture[str]


def records(*more: Record) -> list[Record]:
    request = make("run.request", 1, preset="", detail=question().to_detail())
    build = {"exact": True, "build_id": "abc", "evidence": {}}
    declared = make("run.target", 1.0, stage="", preset="", detail=build)
    return [request, declared, *good_records()[1:], *more]


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
