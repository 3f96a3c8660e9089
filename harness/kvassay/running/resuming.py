"""Takes up an interrupted run: which of its tasks ended, and what they measured.

A task that ends without an error leaves its records and, after them, one of its own (`run.task`):
how many records came before it, the build that it measured, and a digest of what else they depend
on, which is the function, its arguments and the Python sources of harness, suite and backend. A
task is taken as done where digest and build are the same today; any other runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..backend.sources import code_digest
from ..errors import KvassayError, RecordError
from ..judging.evidence import DONE
from ..judging.gate import RUN, Question
from ..records import Record, records_of
from ..registry import load, provider
from ..suite import Target, Task
from .machine import describe_machine
from .workers import IsolatedPool, WorkerDied, WorkerTimeout

#: What figures depend on besides the code; memory and load may differ between two sittings.
_SAME_MACHINE: Final = ("machine", "processor", "flags", "cores", "python", "packages", "kvassay")

Builds = Mapping[Target | None, str]


@dataclass(frozen=True)
class TakenUp:
    """Tasks that ended in the earlier sitting, what they measured, and the tasks that did not."""

    records: tuple[Record, ...]
    done: tuple[Task, ...]
    left: tuple[Task, ...]


def done_record(task: Task, records: int, seconds: float, build: str) -> Record:
    """What a task leaves behind its `records` when it ended well."""
    target = task.target or Target("", "")
    return Record(
        suite=RUN,
        check=DONE,
        stage="",
        backend=target.backend,
        variant=target.variant,
        value=seconds,
        unit="seconds",
        comparisons=1,
        subject=task.label,
        detail={"digest": digest(task), "build": build, "records": records, "suite": task.suite},
    )


def build_of(target: Target | None) -> str:
    """Build id of a target, "" where there is none or it cannot be loaded."""
    if target is None:
        return ""
    try:
        return load(target.backend, target.variant).build_id
    except Exception:  # whatever a backend raises when it is loaded, a task has told already
        return ""


def builds_of(targets: Iterable[Target], timeout: float) -> Builds:
    """Build ids of today, found in a worker, since loading a backend may kill."""
    found: dict[Target | None, str] = {None: ""}
    with IsolatedPool(1, timeout) as pool:
        for target in targets:
            try:
                found[target] = pool.submit(build_of, target).result()
            except (WorkerDied, WorkerTimeout):
                found[target] = "cannot be loaded"
    return found


def take_up(
    earlier: Sequence[Record], question: Question, tasks: Sequence[Task], builds: Builds
) -> TakenUp:
    """Divide tasks into done and left by the records of an earlier sitting.

    Raises KvassayError where those answer another question or come from another machine.
    """
    _check_same(earlier, question)
    blocks: dict[tuple[str, str], Sequence[Record]] = {}
    for place, record in enumerate(earlier):
        if record.check == DONE:
            first = place - int(record.detail["records"])
            key = (str(record.detail["digest"]), str(record.detail["build"]))
            blocks[key] = earlier[max(0, first) : place + 1]
    pairs = [(task, (digest(task), builds.get(task.target, ""))) for task in tasks]
    return TakenUp(
        records=tuple(r for _, key in pairs if key in blocks for r in blocks[key]),
        done=tuple(task for task, key in pairs if key in blocks),
        left=tuple(task for task, key in pairs if key not in blocks),
    )


def read_cut_short(path: Path) -> list[Record]:
    """Records of a file whose last line may have been cut short; raises RecordError for others."""
    if not path.is_file():
        raise KvassayError(f"--resume: no file {path} to take up; leave the option out to begin")
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last end of a line is torn
    found = list(records_of(lines, path))
    if not any(record.check == "run.request" for record in found):
        raise RecordError(f"{path}: holds no run.request, so no run of kvassay to take up")
    return found


def digest(task: Task) -> str:
    """SHA-256 over what a task's records depend on besides the build, shortened."""
    said = {
        "function": task.function,
        "arguments": dict(task.arguments),
        "sources": [_sources(name) for name in sorted(_packages(task))],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def _packages(task: Task) -> set[str]:
    """Top packages whose sources a task runs."""
    found = {"kvassay", task.function.partition(".")[0].partition(":")[0]}
    if task.target is not None:
        module, colon, _ = task.target.backend.partition(":")
        if colon:
            found.add(module.partition(".")[0])
        with contextlib.suppress(KvassayError):  # what cannot be found has told its task so
            found.add(type(provider(task.target.backend)).__module__.partition(".")[0])
    return found


def _sources(package: str) -> str:
    """Digest of a package's code, "" for one that cannot be found: its task will say so."""
    try:
        return code_digest(package, libraries=True)
    except KvassayError:
        return ""


def _check_same(earlier: Sequence[Record], question: Question) -> None:
    asked = Question.of(earlier).to_detail()
    for name, value in question.to_detail().items():
        if name != "baseline" and asked[name] != value:
            raise KvassayError(
                f"--resume: the file's run asked for {name} {asked[name]!r}, this one for "
                f"{value!r}: give the same options, or leave --resume out to begin anew"
            )
    then = next((r.detail for r in earlier if r.check == "run.machine"), {})
    now = json.loads(json.dumps(describe_machine()))
    for name in _SAME_MACHINE:
        if then.get(name) != now.get(name):
            raise KvassayError(
                f"--resume: {name} was {then.get(name)!r} and is {now.get(name)!r}: figures of two "
                f"machines do not mix; leave --resume out to begin anew"
            )
