"""Counts of instructions, and outputs that must be right before a figure counts."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvassay
from kvassay.protocol import Backend, FloatArray
from kvassay.records import Record

from . import callgrind, counted, fresh, holding, instructions, steps
from .truth import check, expected
from .work import Owner, Shape

SMALL = Shape(1, 2, 64)
OWNER = Owner("native", "scalar", 260, SMALL, "abc")


class Loaded:
    """What `check` asks of a backend."""

    def __init__(self, exact: bool, bound: float | None = None) -> None:
        self.exact, self.bound = exact, bound


def loaded(exact: bool, bound: float | None = None) -> Any:
    return Loaded(exact, bound)


def test_an_exact_output_is_right_to_the_bit() -> None:
    truth = expected("turbo", 260, SMALL, True)
    assert check(loaded(True), OWNER, "turbo", truth).wrong == ""
    bent = truth.copy()
    bent[0, 3] = np.nextafter(bent[0, 3], np.float32(9))
    found = check(loaded(True), OWNER, "turbo", truth, bent)
    assert found.wrong == "1 of 128 floats differ from the reference"
    assert (found.count(10), math.isnan(found.value(1.0))) == (0, True)
    assert found.detail["reason"] == found.wrong
    assert "shape" in check(loaded(True), OWNER, "turbo", truth[:1]).wrong


def test_a_bounded_output_is_right_within_its_bound() -> None:
    truth = expected("turbo", 260, SMALL, True)
    near = (truth * np.float32(1.001)).astype(np.float32)
    assert check(loaded(False, 0.01), OWNER, "turbo", near).wrong == ""
    assert "0.0001 is declared" in check(loaded(False, 1e-4), OWNER, "turbo", near).wrong
    assert "0 is declared" in check(loaded(False), OWNER, "turbo", near).wrong


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native backend with one bit of every output of preset turbo turned: fast, and wrong."""
    real = kvassay.load

    def bend(cache: Any) -> Any:
        attend: Callable[..., FloatArray] = cache.attend

        def bent(layer: int, q: FloatArray) -> FloatArray:
            out = attend(layer, q).copy()
            out.view(np.uint32).flat[0] ^= 1
            return out

        cache.attend = bent
        return cache

    def load(name: str, *variant: str) -> Backend:
        found = real(name, *variant)
        if name == "native":
            prepare = found.prepare
            found.prepare = lambda spec: (  # type: ignore[method-assign, assignment, misc]
                bend(prepare(spec)) if spec.keys.startswith("turbo") else prepare(spec)
            )
        return found

    monkeypatch.setattr(kvassay, "load", load)


ARGUMENTS: dict[str, Any] = {
    **{"backend": "native", "variant": "scalar", "presets": ["fp16", "turbo"], "tokens": 260},
    **{"shape": asdict(SMALL), "seconds": 0.0},
}


@pytest.mark.usefixtures("wrong")
def test_a_fast_kernel_whose_output_is_wrong_gives_no_number() -> None:
    held = {name: value for name, value in ARGUMENTS.items() if name != "seconds"}
    records = [
        *steps.measure(**ARGUMENTS, rounds=10, judged=True),
        *fresh.measure(**ARGUMENTS),
        *holding.measure(**held),
    ]
    bent = [record for record in records if record.preset == "turbo"]
    plain = [record for record in records if record.preset == "fp16"]
    assert {r.check for r in bent} == {r.check for r in plain} - {"performance.roofline"}
    assert all(r.comparisons == 0 and math.isnan(r.value) for r in bent)
    assert all("floats differ from the reference" in r.detail["reason"] for r in bent)
    assert not any("samples" in r.detail for r in bent)
    assert all(math.isfinite(r.value) and "reason" not in r.detail for r in plain)


FAKE = """#!{python}
import os, pathlib, subprocess, sys
out = next(a.partition("=")[2] for a in sys.argv if a.startswith("--callgrind-out-file="))
at = sys.argv.index(sys.executable) if sys.executable in sys.argv else 5
for number, total in enumerate({totals}, 1):
    text = f"desc: Trigger: --dump-after=getppid\\ntotals: {{total}}\\n"
    pathlib.Path(f"{{out}}.{{number}}").write_text(text)
sys.exit(subprocess.run(sys.argv[at:]).returncode)
"""


def pretend(folder: Path, monkeypatch: pytest.MonkeyPatch, totals: list[int]) -> None:
    """A valgrind that runs the program as it is and reports these totals."""
    tool = folder / "valgrind"
    tool.write_text(FAKE.format(python=sys.executable, totals=totals), encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "linux")


def ask(presets: list[str]) -> list[Record]:
    return instructions.measure("native", "scalar", presets, 260)


def test_counts_are_spans_less_the_price_of_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [10**9, 7, 5000, 107, 57, 1007, 5000, 207, 77, 2007]
    pretend(tmp_path, monkeypatch, spans)
    found = {(r.preset, r.detail["operation"]): r for r in ask(["fp16", "turbo"])}
    assert {key: record.value for key, record in found.items()} == {
        ("fp16", "attend"): 100, ("fp16", "scores"): 50, ("fp16", "append"): 1000,
        ("turbo", "attend"): 200, ("turbo", "scores"): 70, ("turbo", "append"): 2000,
    }  # fmt: skip
    assert {record.comparisons for record in found.values()} == {1}
    assert found["turbo", "attend"].detail["output"] == found["turbo", "attend"].detail["expected"]
    assert found["turbo", "attend"].subject.startswith("attend, 260 tokens")


def test_a_counted_output_that_is_wrong_gives_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, monkeypatch, [10**9, 7, 5000, 107, 57, 1007])
    monkeypatch.setattr(counted, "checksum", lambda out: "of something else")
    records = ask(["turbo"])
    assert {r.comparisons for r in records} == {0}
    assert "computed something else" in records[0].detail["reason"]


def test_what_cannot_be_counted_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (plain,) = instructions.measure("reference", "scalar", ["turbo"], 260)
    assert (plain.comparisons, "plain Python" in plain.detail["reason"]) == (0, True)
    monkeypatch.setenv("PATH", str(tmp_path))
    (record,) = ask(["turbo"])
    assert (record.comparisons, math.isnan(record.value)) == (0, True)
    assert record.detail["reason"] == "valgrind is not installed"


def test_a_program_that_fails_or_marks_too_little_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, monkeypatch, [1, 2])
    with pytest.raises(ValueError, match="0 spans for 1 presets of 4 each"):
        ask(["turbo"])
    with pytest.raises(callgrind.NotCountedError, match="exit status"):
        callgrind.count(Path(counted.__file__), {"nonsense": 1})
    _, outputs = callgrind.count(
        Path(counted.__file__), {"targets": ["native/none"], "presets": ["turbo"], "tokens": 260}
    )
    assert "none" in outputs["native/none"]["error"]
    assert counted.read([7], outputs) == {}


def test_an_engine_that_counts_says_the_same_twice() -> None:
    pytest.importorskip("wasmtime")
    first, second = (instructions.measure("wasm", "simd128", ["turbo"], 260) for _ in range(2))
    assert [r.value for r in first] == [r.value for r in second]
    assert all(r.value > 1000 and r.comparisons == 1 for r in first)


@pytest.mark.long
@pytest.mark.skipif(bool(callgrind.why_not()), reason=callgrind.why_not())
def test_valgrind_counts_the_same_twice() -> None:
    first, second = (ask(["turbo"]) for _ in range(2))
    assert all(r.comparisons == 1 for r in first), json.dumps([r.detail for r in first])
    for a, b in zip(first, second, strict=True):
        assert a.value == pytest.approx(b.value, rel=0.005)
