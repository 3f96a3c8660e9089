"""The history of benchmarks: what asv wrote becomes pages; parameters are only ever appended."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvassay.cli import run
from kvassay.errors import RecordError
from kvassay.report.asv_results import read_history, reasons
from kvassay.report.history import write_history

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "docs" / "history"
SUITE = ROOT / "suites" / "benchmarks"
PARAMS = [["'native/avx2'", "'native/neon'"], ["'fp16'", "'turbo'"]]


def commit(name: str, day: int, values: list[float | None]) -> dict[str, Any]:
    """A results file as asv writes it: `values` by target, then preset."""
    low, high = ([None if v is None else v * f for v in values] for f in (0.9, 1.1))
    return {
        "version": 2,
        "commit_hash": name * 5,
        "date": 1_700_000_000_000 + day * 86_400_000,
        "params": {"machine": "vm"},
        "result_columns": ["result", "params", "version", "stats_ci_99_a", "stats_ci_99_b"],
        "results": {
            "decode.Step.time_attend": [values, PARAMS, "1", low, high],
            "counts.Availability.track_status": [[0.0, 3.0], PARAMS[:1], "1"],
            "gone.from.the.suite": [None, PARAMS, "1"],
        },
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two commits on one machine; the older one's file sorts last."""
    folder = tmp_path / "results"
    (folder / "vm").mkdir(parents=True)
    code = '''class Step:
    def time_attend(self):
        """One query."""

    def setup(self):
        """More."""
'''
    known = {
        "version": 2,
        "decode.Step.time_attend": {
            "version": "1", "unit": "seconds", "param_names": ["target", "preset"],
            "params": PARAMS, "code": code,
        },
        "counts.Availability.track_status": {
            "version": "1", "unit": "0 ready, 3 unsupported-cpu", "param_names": ["target"],
            "params": PARAMS[:1], "code": "",
        },
    }  # fmt: skip
    nan = float("nan")
    write(folder / "benchmarks.json", known)
    write(folder / "vm" / "machine.json", {"machine": "vm", "cpu": "Z80", "version": 1})
    write(folder / "vm" / "aaaaaaaa-env.json", commit("beef0002", 2, [2e-3, 5e-4, nan, None]))
    write(folder / "vm" / "bbbbbbbb-env.json", commit("beef0001", 1, [2e-3, 1e-3, nan, nan]))
    return folder


def write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def test_commits_come_in_order_with_their_figures(results: Path) -> None:
    found = read_history(results)
    assert [c.name[:8] for c in found.commits] == ["beef0001", "beef0002"]
    (step,) = (b for b in found.benchmarks if b.name == "decode.Step.time_attend")
    assert (step.unit, step.about) == ("seconds", "One query.")
    turbo = {
        tuple(s.parameters.values()): [s.points[c.name] for c in found.commits] for s in step.series
    }
    assert [p.value for p in turbo["native/avx2", "turbo"]] == [1e-3, 5e-4]
    assert turbo["native/avx2", "turbo"][1].high == pytest.approx(5.5e-4)
    assert [p.state for p in turbo["native/neon", "turbo"]] == ["n/a", "failed"]
    assert reasons(found) == {"native/neon": "unsupported-cpu"}


def test_figures_of_other_code_are_left_out(results: Path) -> None:
    path = results / "vm" / "aaaaaaaa-env.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["results"]["decode.Step.time_attend"][2] = "an older benchmark of that name"
    write(path, data)
    (step,) = (b for b in read_history(results).benchmarks if b.name.startswith("decode"))
    assert {name[:8] for series in step.series for name in series.points} == {"beef0001"}


def test_pages_need_neither_server_nor_network_nor_script(results: Path, tmp_path: Path) -> None:
    pages = write_history(tmp_path / "pages", read_history(results))
    assert [path.name for path in pages] == ["index.html", "decode.Step.time_attend.html"]
    index, step = (path.read_text(encoding="utf-8") for path in pages)
    check_page(index, tmp_path / "pages")
    check_page(step, tmp_path / "pages")
    for text in ("-50.0 %", "<b>native/neon</b>: unsupported-cpu", "beef0001", "Z80"):
        assert text in index
    assert "decode.Step.time_attend native/neon turbo on vm at beef0002" in index  # it failed
    for text in ("native/avx2 on vm", "One query.", "0.0005", "<svg"):
        assert text in step
    assert "native/neon on vm" not in step  # there is nothing to draw


def check_page(text: str, folder: Path) -> None:
    """Every address is another of the pages; nothing runs, nothing is fetched."""
    assert not re.search(r"<script|@import|url\((?!#)|<link|<img|<iframe", text)
    for address in re.findall(r'(?:href|src)="([^"]*)"', text):
        assert address.startswith("#") or (folder / address).is_file(), address


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("benchmarks.json", [], "holds list, not an object"),
        ("vm/aaaaaaaa-env.json", {"version": 3}, "not a results file of asv"),
        ("vm/aaaaaaaa-env.json", {"version": 2, "results": {}}, "not a results file of asv"),
    ],
)
def test_other_files_are_refused_by_name(results: Path, name: str, data: Any, said: str) -> None:
    write(results / name, data)
    with pytest.raises(RecordError, match=f"{name}.*{said}"):
        read_history(results)


def test_a_folder_without_figures_is_refused(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in results.glob("vm/*-env.json"):
        path.unlink()
    with pytest.raises(RecordError, match="no figure of any commit"):
        read_history(results)
    assert run(["history", str(tmp_path), "--pages", str(tmp_path / "p")]) == 2
    assert "is not there: is" in capsys.readouterr().err


def test_the_sample_has_five_commits_and_opens_from_the_disk() -> None:
    found = read_history(SAMPLE / "results")
    assert len(found.commits) >= 5
    assert reasons(found)
    pages = list(SAMPLE.glob("*.html"))
    assert len(pages) >= 5
    for path in pages:
        check_page(path.read_text(encoding="utf-8"), SAMPLE)
    index = (SAMPLE / "index.html").read_text(encoding="utf-8")
    assert all(commit.short in index for commit in found.commits)


def parameters_today() -> dict[str, list[Any]]:
    """Lists of parameters in the benchmarks' source, by name."""
    tree = ast.parse((SUITE / "common.py").read_text(encoding="utf-8"))
    return {
        node.target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in ("TARGETS", "PRESETS", "TOKENS", "STATUSES")
        and node.value is not None
    }


def published() -> dict[str, list[Any]]:
    """The same lists as the published history has them."""
    data = json.loads((SAMPLE / "results" / "benchmarks.json").read_text(encoding="utf-8"))
    step = data["decode.Step.time_attend"]["params"]
    lists = [[ast.literal_eval(value) for value in values] for values in step]
    unit = data["counts.Availability.track_status"]["unit"]
    statuses = [part.split(" ", 1)[1] for part in unit.split(", ")]
    return {**dict(zip(("TARGETS", "PRESETS", "TOKENS"), lists, strict=True)), "STATUSES": statuses}


def lost(before: dict[str, list[Any]], now: dict[str, list[Any]]) -> list[str]:
    """Lists of which the published values are no longer the beginning."""
    return [name for name, values in before.items() if now[name][: len(values)] != values]


def test_parameters_are_only_appended() -> None:
    assert lost(published(), parameters_today()) == []


def test_a_lost_or_moved_parameter_is_seen() -> None:
    before, now = published(), parameters_today()
    assert lost(before, {**now, "PRESETS": [*now["PRESETS"], "new"]}) == []
    assert lost(before, {**now, "PRESETS": now["PRESETS"][1:]}) == ["PRESETS"]
    assert lost(before, {**now, "TARGETS": now["TARGETS"][::-1]}) == ["TARGETS"]
    assert lost(before, {**now, "TOKENS": [64, *now["TOKENS"]]}) == ["TOKENS"]
