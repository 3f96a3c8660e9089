"""Reads what asv measured over commits: its results folder, as plain series.

The files are asv's (format 2): `benchmarks.json` says what there is, a folder a machine holds one
file a commit and environment. A value that is NaN was not applicable, or not asked for; one that is
null failed; one whose version is not that of its benchmark was measured by other code and is left
out.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from ..errors import RecordError

State = Literal["measured", "n/a", "failed"]
_FORMAT: Final = 2
_NOT_RESULTS: Final = ("machine.json", "benchmarks.json")
#: Name of the benchmark that keeps why a target has no figures; its unit numbers the reasons.
AVAILABILITY: Final = "track_status"


@dataclass(frozen=True)
class Commit:
    """`subject` is the first line of its message, "" where git does not know the commit."""

    name: str
    date: datetime
    subject: str

    @property
    def short(self) -> str:
        """What people type."""
        return self.name[:8]


@dataclass(frozen=True)
class Point:
    """A figure at one commit; `low` and `high` span 99 % where asv has an interval."""

    state: State
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Series:
    """One benchmark with one set of parameters on one machine, by commit."""

    machine: str
    parameters: Mapping[str, str]
    points: Mapping[str, Point]


@dataclass
class Benchmark:
    """`unit` is asv's; `about` is the first line of its documentation."""

    name: str
    unit: str
    about: str
    version: str
    parameters: tuple[str, ...]
    series: list[Series] = field(default_factory=list)


@dataclass(frozen=True)
class History:
    """Commits from the oldest, benchmarks that have a figure, and machines by name."""

    commits: tuple[Commit, ...]
    benchmarks: tuple[Benchmark, ...]
    machines: Mapping[str, Mapping[str, str]]


def read_history(folder: str | os.PathLike[str], repository: str = ".") -> History:
    """The history in a results folder of asv; RecordError says which file is wrong, and how."""
    root = Path(folder)
    known = {
        name: Benchmark(
            name,
            str(found.get("unit", "")),
            _about(name, str(found.get("code", ""))),
            str(found.get("version", "")),
            tuple(found.get("param_names", ())),
        )
        for name, found in _load(root / "benchmarks.json").items()
        if isinstance(found, dict)
    }
    commits: dict[str, Commit] = {}
    machines: dict[str, Mapping[str, str]] = {}
    series: dict[tuple[str, str, tuple[str, ...]], dict[str, Point]] = {}
    for path in sorted(root.glob("*/*.json")):
        if path.name in _NOT_RESULTS:
            continue
        data = _load(path)
        machine = path.parent.name
        machines[machine] = {
            str(k): str(v) for k, v in _load(path.with_name("machine.json")).items()
        }
        try:
            name = str(data["commit_hash"])
            date = datetime.fromtimestamp(int(data["date"]) / 1000, UTC)
            commits[name] = Commit(name, date, _subject(name, repository))
            for benchmark, found in _results(data).items():
                if benchmark in known and found.get("version") == known[benchmark].version:
                    for parameters, point in _points(found):
                        key = (benchmark, machine, parameters)
                        series.setdefault(key, {})[name] = point
        except (KeyError, TypeError, ValueError, SyntaxError) as error:
            raise RecordError(f"{path}: not a results file of asv: {error!r}") from None
    if not series:
        raise RecordError(f"{root}: no figure of any commit; measure some with `asv run`")
    for (benchmark, machine, parameters), points in sorted(series.items()):
        named = dict(zip(known[benchmark].parameters, parameters, strict=True))
        known[benchmark].series.append(Series(machine, named, points))
    ordered = sorted(commits.values(), key=lambda commit: (commit.date, commit.name))
    filled = [found for _, found in sorted(known.items()) if found.series]
    return History(tuple(ordered), tuple(filled), machines)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(
            f"{path} is not there: is {path.parent} a results folder of asv?"
        ) from None
    except ValueError as error:
        raise RecordError(f"{path}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise RecordError(f"{path}: holds {type(data).__name__}, not an object")
    return data


def _results(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows of a results file as dictionaries; trailing columns without a value are left out."""
    if data.get("version") != _FORMAT:
        raise ValueError(f"format {data.get('version')!r}, where {_FORMAT} is read")
    columns = data["result_columns"]
    return {
        name: dict(zip(columns, row, strict=False)) for name, row in data["results"].items() if row
    }


def _points(found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Point]]:
    """Every combination of parameters that was run."""
    combinations = list(itertools.product(*found.get("params") or ()))
    values = found["result"] if found["result"] is not None else [None] * len(combinations)
    lows, highs = (
        found.get(name) or [None] * len(combinations) for name in ("stats_ci_99_a", "stats_ci_99_b")
    )
    for names, value, low, high in zip(combinations, values, lows, highs, strict=True):
        parameters = tuple(str(ast.literal_eval(name)) for name in names)
        if value is None:
            yield parameters, Point("failed")
        elif math.isnan(value):
            yield parameters, Point("n/a")
        else:
            ends = [float(value if end is None else end) for end in (low, high)]
            yield parameters, Point("measured", float(value), *ends)


def _about(name: str, code: str) -> str:
    """The first line of the documentation in a benchmark's source, which asv keeps."""
    documented = code.partition(f"def {name.rpartition('.')[2]}(")[2].split('"""')
    return documented[1].strip().splitlines()[0] if len(documented) > 2 else ""


def _subject(commit: str, repository: str) -> str:
    git = ("git", "-C", repository, "show", "-s", "--format=%s", commit)
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def reasons(history: History) -> Mapping[str, str]:
    """By target, what the registry said of it at the newest commit, where that was not "ready"."""
    found: dict[str, str] = {}
    order: Sequence[str] = [commit.name for commit in history.commits]
    for benchmark in history.benchmarks:
        if not benchmark.name.endswith(AVAILABILITY):
            continue
        words = dict(part.strip().split(" ", 1) for part in benchmark.unit.split(","))
        for series in benchmark.series:
            newest = max(series.points, key=order.index)
            number = f"{series.points[newest].value:.0f}"
            if words.get(number, "ready") != "ready":
                found[series.parameters["target"]] = words[number]
    return found
