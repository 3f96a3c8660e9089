"""Whatever a task does becomes a record, attributed to it and to nothing else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from synthetic import PRESET, TARGET, FakeSuite, good_records, make, question, task

from kvassay.errors import KvassayError, UnknownBackendError
from kvassay.judging.gate import judge
from kvassay.records import Record
from kvassay.running import again
from kvassay.running.again import command, labelled
from kvassay.running.runner import Answer, Summary, collect_tasks, plan_tasks, run
from kvassay.running.workers import IsolatedPool, WorkerDied
from kvassay.suite import Request, Suite, Target, Task

REQUEST = Request((TARGET,), (PRESET,))


def gather(tasks: Sequence[Task], **options: Any) -> tuple[list[Record], Summary]:
    records: list[Record] = []
    summary = run(tasks, records.extend, **options)
    return records, summary


def errors(records: Iterable[Record]) -> dict[str, str]:
    """Subject and message of what went wrong."""
    return {r.subject: r.detail["error"] for r in records if r.check == "run.errors" and r.value}


def totals(records: Iterable[Record]) -> list[Record]:
    return [r for r in records if r.subject == "tasks that ran"]


def test_each_way_to_fail_is_named_and_the_others_run_on() -> None:
    good = task("measure", records=[make("quality.a", 1.0)])
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "fail": ({"message": "the cause"}, "ValueError: the cause"),
        "abort": ({}, "crashed (signal 6, SIGABRT)"),
        "leave": ({}, "crashed (exit status 3)"),
        "nothing": ({}, "returned no record: it measured nothing"),
        "nonsense": ({}, "TypeError: returned list, not records"),
        "sleep": ({"seconds": 600.0}, "timed out: took longer than 4 s"),
    }
    tasks = [task(name, **arguments) for name, (arguments, _) in bad.items()]
    records, summary = gather([good, *tasks, good], jobs=2, timeout=4.0)
    expected = {t.label: message for t, (_, message) in zip(tasks, bad.values(), strict=True)}
    assert errors(records) == expected
    assert [r.check for r in records].count("quality.a") == 2
    assert (summary.tasks, summary.done, summary.errors) == (8, 8, 6)
    assert not summary.interrupted
    (total,) = totals(records)
    assert (total.value, total.comparisons, total.backend) == (0.0, 2, TARGET.backend)


def test_an_error_carries_its_evidence_and_a_command() -> None:
    records, _ = gather([task("fail", message="here"), task("abort")], jobs=1)
    raised, crashed = (r for r in records if r.check == "run.errors" and r.value)
    assert 'raise ValueError(f"first line' in raised.detail["evidence"]
    assert "Fatal Python error: Aborted" in crashed.detail["evidence"]
    assert raised.reproduce == """kvassay run synthetic:fail '{"message": "here"}'"""
    assert (raised.preset, raised.stage, raised.detail["suite"]) == (PRESET, "math", "quality")


def test_every_record_can_be_repeated_and_slow_tasks_are_known() -> None:
    own = make("quality.b", 1.0, reproduce="own command")
    one = task("measure", records=[own, make("quality.a", 1.0)])
    records, _ = gather([one, task("sleep", seconds=0.3)], jobs=1)
    by_check = {r.check: r for r in records}
    assert by_check["quality.b"].reproduce == "own command"
    assert by_check["quality.a"].reproduce == command(one)
    label, seconds = totals(records)[0].detail["slowest"][0]
    assert label.startswith("sleep")
    assert seconds >= 0.3


def test_a_crash_rejects_its_target() -> None:
    records, _ = gather([task("abort")], jobs=1)
    verdict = judge([*good_records(), *records], question()).verdicts[0]
    assert verdict.named("reject") == ("run.errors",)


def test_a_crash_of_shared_work_rejects_every_target() -> None:
    records, _ = gather([task("abort", target=None)], jobs=1)
    (crash,) = records
    assert (crash.backend, crash.variant) == ("", "")
    assert judge([*good_records(), *records], question()).exit_status == 1


def test_a_target_of_which_nothing_ran_is_not_measured() -> None:
    records, _ = gather([task("nothing")], jobs=1)
    assert totals(records)[0].comparisons == 0


def test_workers_limit_the_threads_of_numpy() -> None:
    records, _ = gather([task("environment")], jobs=64)
    assert records[0].value == 1


def test_the_short_half_starts_first_and_the_longest_before_the_rest() -> None:
    started: list[str] = []

    class Recording(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            started.append(args[0].label)
            return super().submit(fn, *args, **kwargs)

    given = [task("sleep", weight=weight, seconds=0.01 * weight) for weight in (4, 1, 3, 2)]
    with Recording(1) as executor:
        gather(given, executor=executor)
    assert started == [given[number].label for number in (1, 3, 0, 2)]


def test_what_must_run_alone_runs_last_with_nothing_beside_it() -> None:
    class Watching:
        def __init__(self) -> None:
            self.beside: list[set[bool]] = []
            self.ended: list[bool] = []

        def running(self, tasks: Sequence[Task]) -> None:
            self.beside.append({task.alone for task in tasks})
            if any(task.alone for task in tasks):
                assert len(tasks) == 1

        def done(self, task: Task, answer: Answer) -> None:
            self.ended.append(task.alone)

    plain = [task("sleep", seconds=0.5), task("sleep", seconds=0.4)]
    alone = [replace(task("sleep", weight=9.0, seconds=s), alone=True) for s in (0.5, 0.3)]
    watch = Watching()
    records, summary = gather([*alone, *plain], jobs=2, watch=watch)
    assert watch.ended == [False, False, True, True]
    assert {True} in watch.beside
    assert {True, False} not in watch.beside
    assert summary.done == 4
    slept = [r.value for r in records if r.check == "quality.slept"]
    assert (sorted(slept[:2]), slept[2:]) == ([0.4, 0.5], [0.5, 0.3])


def test_an_executor_is_not_given_what_must_run_alone() -> None:
    given: list[str] = []

    class Recording(ThreadPoolExecutor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            given.append(args[0].label)
            return super().submit(function, *args, **kwargs)

    alone = replace(task("sleep", seconds=0.0), alone=True)
    with Recording(2) as executor:
        _, summary = gather([alone, task("measure", records=[])], executor=executor, jobs=1)
    assert given == ["measure"]
    assert summary.done == 2


def test_any_executor_runs_tasks() -> None:
    with ThreadPoolExecutor(2) as executor:
        records, summary = gather(
            [task("measure", records=[make("quality.a", 1.0)]), task("fail", message="m")],
            executor=executor,
        )
    assert summary.done == 2
    assert [r.check for r in records] in (
        ["quality.a", "run.task", "run.errors", "run.errors"],
        ["run.errors", "quality.a", "run.task", "run.errors"],
    )


class Breaking(Executor):
    """Runs the first call and then breaks, as a pool does that lost a worker."""

    def __init__(self, calls: int) -> None:
        self._calls = calls

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self._calls > 0:
            future.set_result(fn(*args, **kwargs))
        else:
            future.set_exception(BrokenExecutor("a worker died"))
        self._calls -= 1
        return future


def test_what_a_broken_executor_lost_runs_again_and_names_the_culprit() -> None:
    good = [task("measure", records=[make("quality.a", float(i))]) for i in range(3)]
    records, summary = gather([*good, task("abort")], executor=Breaking(1), jobs=1)
    assert sorted(r.value for r in records if r.check == "quality.a") == [0.0, 1.0, 2.0]
    assert list(errors(records).values()) == ["crashed (signal 6, SIGABRT)"]
    assert summary.done == 4


class Interrupting:
    """A watch that presses Ctrl-C after the first task."""

    def running(self, tasks: Sequence[Task]) -> None:
        pass

    def done(self, task: Task, answer: Answer) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_run_keeps_what_it_has_and_cannot_pass() -> None:
    first = task("measure", weight=0.5, records=good_records())
    rest = [task("sleep", seconds=600.0) for _ in range(3)]
    records, summary = gather([first, *rest], jobs=1, watch=Interrupting())
    assert summary.interrupted
    assert summary.done == 1
    unfinished = [r for r in records if r.detail.get("error") == "interrupted before it ended"]
    assert len(unfinished) == 3
    judgement = judge(records, question())
    assert judgement.exit_status == 2
    assert judgement.verdicts[0].named("not measured") == ("run.errors",)


def test_the_watch_hears_of_every_task() -> None:
    class Watch:
        def __init__(self) -> None:
            self.labels: list[str] = []
            self.heard = threading.Event()

        def running(self, tasks: Sequence[Task]) -> None:
            if tasks:
                self.heard.set()

        def done(self, task: Task, answer: Answer) -> None:
            self.labels.append(task.label)

    watch = Watch()
    tasks = [task("sleep", seconds=0.5), task("fail", message="m")]
    gather(tasks, jobs=1, watch=watch)
    assert sorted(watch.labels) == sorted(t.label for t in tasks)
    assert watch.heard.is_set()


def test_a_pool_raises_what_a_call_raises() -> None:
    with IsolatedPool(1) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(divmod, 1, 1)


def test_a_pool_that_is_stopped_kills_what_runs() -> None:
    pool = IsolatedPool(1)
    running = pool.submit(time.sleep, 600.0)
    waiting = pool.submit(divmod, 1, 1)
    while not running.running():
        time.sleep(0.01)
    pool.shutdown(wait=True, cancel_futures=True)
    assert waiting.cancelled()
    assert isinstance(running.exception(), WorkerDied)


def test_no_suite_and_no_task_are_errors() -> None:
    with pytest.raises(KvassayError, match="no suite was selected"):
        collect_tasks([], REQUEST)
    with pytest.raises(KvassayError, match="suite 'empty' has no task"):
        collect_tasks([FakeSuite("empty", [])], REQUEST)
    one = task("nothing")
    assert collect_tasks([FakeSuite("a", [one]), FakeSuite("b", [one])], REQUEST) == [one, one]


@dataclass
class Deadly(Suite):
    """A suite whose planning asks every backend something that ends the process of one."""

    name: str = "quality"

    def tasks(self, request: Request) -> Sequence[Task]:
        if any(target.backend == "deadly" for target in request.targets):
            os.kill(os.getpid(), signal.SIGSEGV)
        return [task("measure", records=[make("quality.a", 1.0)]) for _ in request.targets]


def test_a_backend_that_kills_its_planner_is_recorded_and_the_others_go_on() -> None:
    deadly = Target("deadly", "scalar")
    both = Request((deadly, TARGET), (PRESET,))
    planned = plan_tasks([Deadly()], both, 60.0)
    assert [one.label for one in planned] == ["measure", "plan deadly/scalar"]
    assert planned[1].target == deadly
    assert planned[1].arguments["presets"] == (PRESET,)
    alone = plan_tasks([Deadly()], Request((deadly,), (PRESET,)), 60.0)
    assert [one.label for one in alone] == ["plan deadly/scalar"]
    records, _ = gather(alone)
    (error,) = (r for r in records if r.check == "run.errors" and r.value)
    assert error.backend == "deadly"
    with pytest.raises(KvassayError, match="no task"):
        plan_tasks([FakeSuite("empty", [])], REQUEST, 60.0)


def test_commands_are_safe_for_a_shell() -> None:
    one = task("fail", message="it's; rm")
    assert command(one) == """kvassay run synthetic:fail '{"message": "it'"'"'s; rm"}'"""


LONG = replace(task("fail", message="x" * 5000), label="a long one")
AGAIN = (
    f"kvassay run quality '{LONG.label}' --depth full --preset turbo --backend reference "
    "--variant scalar"
)


def test_a_command_too_long_for_a_reader_names_suite_depth_and_task() -> None:
    assert command(LONG, "full") == AGAIN
    records, _ = gather([LONG], jobs=1, depth="full")
    assert [r.reproduce for r in records if r.check == "run.errors" and r.value] == [AGAIN]


def test_what_it_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = replace(LONG, label="a"), replace(LONG, label="a", preset="kivi")
    monkeypatch.setattr(again, "get_suite", lambda name: FakeSuite(name, [one, two]))
    assert labelled("quality", "a", REQUEST, PRESET) is one
    assert labelled("quality", "a", REQUEST, "kivi") is two
    with pytest.raises(UnknownBackendError, match=r"suite quality has no task 'aa'.*'a'"):
        labelled("quality", "aa", REQUEST, PRESET)
