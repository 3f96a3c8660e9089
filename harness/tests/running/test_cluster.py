"""A cluster of two workers answers as this machine does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from synthetic import task

from kvassay.cli import run as cli
from kvassay.errors import UnavailableError
from kvassay.records import Record, read_records
from kvassay.running import cluster as module
from kvassay.running.answers import Answers
from kvassay.running.cluster import cluster
from kvassay.running.runner import run
from kvassay.running.workers import THREAD_VARIABLES, cores
from kvassay.suite import Target, Task

#: What dask and its web server leave behind.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    from distributed import LocalCluster

    # numpy rounds otherwise with another number of threads: as many as the pool below gives.
    threads = dict.fromkeys(THREAD_VARIABLES, str(max(1, cores() // 2)))
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, env=threads
    ) as local:
        yield local.scheduler_address


def measured(tasks: list[Task], **options: Any) -> dict[tuple[str, str], tuple[float, str]]:
    """Value and evidence of every record by check and subject, without the times of a run."""
    records: list[Record] = []
    run(tasks, records.extend, **options)
    return {
        (r.check, r.subject): (r.value, str(sorted(r.detail.items())))
        for r in records
        if r.suite != "run"
    }


def tiny(kind: str) -> Task:
    """A tiny transformer with a quantized cache in its loop."""
    target = Target("native", "scalar")
    return Task(
        suite="quality",
        label=f"tiny {kind}",
        function="kvassay_suites.quality.tiny_transformer:measure",
        arguments={
            **{"backend": target.backend, "variant": target.variant, "preset": "turbo"},
            **{"shapes": [kind], "small_window": False},
        },
        target=target,
        preset="turbo",
        stage="tiny transformer",
    )


@pytest.mark.long
def test_two_workers_give_the_same_records(scheduler: str, tmp_path: Path) -> None:
    tasks = [tiny(kind) for kind in ("mha", "gqa", "mqa")]
    here = measured(tasks, jobs=2)
    with cluster(scheduler) as executor, Answers(tmp_path / "answers.jsonl") as answers:
        there = measured(tasks, executor=executor, answers=answers)
        assert len(answers) == 3
    assert here == there
    assert len(here) == 9


@pytest.mark.long
def test_a_gate_with_a_worker_killed_in_the_middle_gives_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distributed import LocalCluster

    monkeypatch.chdir(tmp_path)
    gate = ["gate", "--backend", "native", "--variant", "scalar", "--preset", "turbo", "--quiet"]
    gate += ["--suite", "correctness", "--suite", "parity", "--depth", "quick"]
    # One thread in numpy everywhere, as each worker of dask has: sums round otherwise with two.
    assert cli([*gate, "--jobs", str(cores()), "--records", "here.jsonl"]) == 0
    alone = capsys.readouterr().out.replace("here.jsonl", "")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local:
        victim = next(iter(local.workers.values())).process.pid
        killer = Thread(target=kill_after, args=(victim, Path("answers.jsonl"), 20))
        killer.start()
        there = [*gate, "--dask", local.scheduler_address, "--answers", "answers.jsonl"]
        assert cli([*there, "--records", "there.jsonl"]) == 0
        killer.join()
        assert victim not in [worker.process.pid for worker in local.workers.values()]
    assert capsys.readouterr().out.replace("there.jsonl", "") == alone
    assert facts(Path("there.jsonl")) == facts(Path("here.jsonl"))


def kill_after(process: int, answers: Path, lines: int) -> None:
    """Kill a process once so many answers have come."""
    while not answers.exists() or answers.read_bytes().count(b"\n") < lines:
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)


def facts(path: Path) -> list[str]:
    """What was measured, order and times aside."""
    records = [record for record in read_records(str(path)) if record.suite != "run"]
    assert len(records) > 50
    return sorted(record.to_json() for record in records)


@pytest.mark.long
def test_an_error_on_a_worker_is_recorded_by_name(scheduler: str) -> None:
    records: list[Record] = []
    with cluster(scheduler) as executor:
        summary = run([task("fail", message="m")], records.extend, executor=executor)
    assert summary.errors == 1
    (error,) = (r for r in records if r.check == "run.errors" and r.value)
    assert error.detail["error"].endswith("m")


@pytest.mark.long
def test_workers_with_other_code_are_refused(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "code_digest", lambda name: f"newer {name}")
    with pytest.raises(UnavailableError, match="other code of kvassay"), cluster(scheduler):
        pass


def test_a_cluster_without_workers_is_refused() -> None:
    with pytest.raises(UnavailableError, match="no worker"):
        module._require_same_code({})


def test_no_scheduler_and_no_package_are_errors_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.2)
    refused = pytest.raises(UnavailableError, match=r"no scheduler at 'tcp://127\.0\.0\.1:9'")
    with refused, cluster("tcp://127.0.0.1:9"):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused = pytest.raises(UnavailableError, match=r"pip install 'kvassay\[cluster\]'")
    with refused, cluster("tcp://127.0.0.1:9"):
        pass
