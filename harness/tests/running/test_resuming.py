"""An interrupted run is taken up: what ended is kept, what did not runs, and nothing else mixes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import TARGET, make, question

from kvassay.errors import KvassayError, RecordError
from kvassay.judging.evidence import DONE
from kvassay.records import Record, RecordWriter, read_records
from kvassay.running import resuming
from kvassay.running.machine import describe_machine
from kvassay.running.resuming import digest, done_record, read_cut_short, take_up
from kvassay.running.runner import execute, opening_records, run
from kvassay.suite import Task

TASKS = [
    Task("quality", f"task {n}", "synthetic:measure", {"n": n}, target=TARGET) for n in range(3)
]
BUILDS = {None: "", TARGET: "build a"}


def sitting(*done: int, build: str = "build a") -> list[Record]:
    """Records of a run in which these tasks ended."""
    records = opening_records(question())
    for n in done:
        mine = [make("quality.a", n), make("quality.b", n)]
        records += [*mine, done_record(TASKS[n], len(mine), 1.0, build)]
    return records


def test_what_ended_is_kept_and_the_rest_is_left() -> None:
    taken = take_up([*sitting(2, 0), make("quality.a", 9)], question(), TASKS, BUILDS)
    assert [task.label for task in taken.done] == ["task 0", "task 2"]
    assert [task.label for task in taken.left] == ["task 1"]
    assert [(r.check, r.value) for r in taken.records] == [
        ("quality.a", 0), ("quality.b", 0), (DONE, 1),
        ("quality.a", 2), ("quality.b", 2), (DONE, 1),
    ]  # fmt: skip


def test_other_builds_arguments_and_sources_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(take_up(sitting(0, build="b"), question(), TASKS, BUILDS).left) == 3
    changed = [replace(task, arguments={"n": 7}) for task in TASKS]
    assert len(take_up(sitting(0), question(), changed, BUILDS).left) == 3
    earlier = sitting(0)
    monkeypatch.setattr(resuming, "_sources", lambda package: "edited")
    assert len(take_up(earlier, question(), TASKS, BUILDS).left) == 3


def test_sources_of_suite_harness_and_backend_are_in_the_digest() -> None:
    assert resuming._packages(TASKS[0]) == {"kvassay", "synthetic", "kvassay_backends"}
    ours = replace(TASKS[0], function="kvassay_suites.parity.run:x", target=None)
    assert resuming._packages(ours) == {"kvassay", "kvassay_suites"}
    assert resuming._sources("synthetic") not in ("", resuming._sources("kvassay"))
    assert digest(TASKS[0]) != digest(ours)


def test_another_question_and_another_machine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KvassayError, match="asked for scope 'default', this one for 'full'"):
        take_up(sitting(0), replace(question(), scope="full"), TASKS, BUILDS)
    held = replace(question(), baseline="earlier.jsonl")  # measures nothing else
    assert len(take_up(sitting(0), held, TASKS, BUILDS).done) == 1
    earlier = sitting(0)
    here = {**describe_machine(), "processor": "Z80"}
    monkeypatch.setattr("kvassay.running.resuming.describe_machine", lambda: here)
    with pytest.raises(KvassayError, match=r"processor was .* and is 'Z80'"):
        take_up(earlier, question(), TASKS, BUILDS)


def test_a_torn_last_line_is_dropped_and_other_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with pytest.raises(KvassayError, match=r"no file .* to take up"):
        read_cut_short(path)
    with RecordWriter(path) as writer:
        writer.write(sitting(0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:40])
    assert read_cut_short(path) == list(read_records_of(whole, tmp_path))
    path.write_bytes(whole[:50] + b"\n" + whole)
    with pytest.raises(RecordError, match=r"r\.jsonl:1: not JSON"):
        read_cut_short(path)
    path.write_bytes(b"\n".join(whole.splitlines()[1:]) + b"\n")
    with pytest.raises(RecordError, match=r"holds no run\.request"):
        read_cut_short(path)


def read_records_of(data: bytes, folder: Path) -> Any:
    path = folder / "whole.jsonl"
    path.write_bytes(data)
    return read_records(path)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("old", encoding="utf-8")
    with RecordWriter(path, sitting(0)) as writer:
        assert len(list(read_records(path))) == len(sitting(0))  # before anything else is written
        writer.write([make("quality.c", 1.0)])
    assert len(list(read_records(path))) == len(sitting(0)) + 1
    assert [p.name for p in tmp_path.iterdir()] == ["r.jsonl"]


def test_tasks_of_both_sittings_count_and_failures_leave_no_mark() -> None:
    records: list[Record] = []
    failing = Task("quality", "fails", "synthetic:nothing", {}, target=TARGET)
    summary = run([failing], records.extend, before=TASKS[:2])
    assert (summary.tasks, summary.done, summary.errors) == (3, 3, 1)
    assert not any(record.check == DONE for record in records)
    (total,) = (r for r in records if r.subject == "tasks that ran")
    assert total.comparisons == 2


def test_the_build_that_was_measured_is_told() -> None:
    task = Task("quality", "x", "kvassay.running.machine:describe_target",
                {"backend": "reference", "variant": "scalar"}, target=TARGET)  # fmt: skip
    assert execute(task).build == ""  # plain Python
    assert resuming.build_of(replace(TARGET, backend="nobody")) == ""
    native = replace(TARGET, backend="native")
    assert resuming.builds_of([native], 60.0)[native] == resuming.build_of(native) != ""


COMMAND = [
    *(sys.executable, "-c", "from kvassay.cli import main; main()", "gate", "--suite", "parity"),
    *("--backend", "native", "--variant", "scalar", "--preset", "turbo", "--depth", "quick"),
    *("--jobs", "1", "--records", "results.jsonl"),
]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for a process group")
def test_ctrl_c_in_a_real_process_and_then_resume(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def begin(*options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *options], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            # What runs in the background of a shell has it ignored, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    path = tmp_path / "results.jsonl"
    first = begin()
    wait_for_tasks(first, path, 4)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    _, said = first.communicate(timeout=120)
    assert first.returncode == 2
    assert "tasks ended; results.jsonl holds what was measured, --resume goes on" in said
    kept = done(path)
    partial = list(read_records(path))
    assert any(r.detail.get("error") == "interrupted before it ended" for r in partial)

    second = begin("--resume")
    shown, said = second.communicate(timeout=300)
    assert second.returncode == 0, shown + said
    assert "PASS" in shown
    assert f"taken up: {len(kept)} of " in said
    after = done(path)
    assert kept.items() <= after.items()  # not measured again: the seconds are the same
    assert len(after) > len(kept)
    assert not any("interrupted" in str(r.detail.get("error")) for r in read_records(path))


def wait_for_tasks(process: subprocess.Popen[str], path: Path, count: int) -> None:
    """Until the file of records holds so many ended tasks."""
    ends = time.monotonic() + 300
    while not path.is_file() or path.read_text(encoding="utf-8").count(f'"{DONE}"') < count:
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.05)


def done(path: Path) -> dict[str, float]:
    """Seconds of the tasks that ended, by digest."""
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return {r["detail"]["digest"]: r["value"] for r in records if r["check"] == DONE}
