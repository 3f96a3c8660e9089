"""Runs tasks and turns what happens to them into records: results, errors, crashes, timeouts."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ..errors import KvassayError, RecordError, UnknownBackendError
from ..judging.evidence import RAN, check_records
from ..judging.gate import RUN, Question
from ..records import Record
from ..registry import provider, variants_of
from ..suite import DEFAULT_TIMEOUT, Depth, Request, Suite, Target, Task, suites
from .again import command
from .answers import Answers
from .machine import availability_records, machine_record
from .resuming import build_of, done_record
from .workers import IsolatedPool, WorkerDied, WorkerTimeout, default_jobs

_TICK: Final = 0.2
_SLOWEST: Final = 5

Sink = Callable[[Iterable[Record]], None]


@dataclass(frozen=True)
class Answer:
    """What became of a task: records, or an error in one line with what is known about it.

    `build` is the build id of the target that was measured.
    """

    records: tuple[Record, ...] = ()
    seconds: float = 0.0
    error: str = ""
    evidence: str = ""
    build: str = ""


class Watch(Protocol):
    """Is told how a run goes."""

    def running(self, tasks: Sequence[Task]) -> None:
        """These tasks run now; called several times a second."""

    def done(self, task: Task, answer: Answer) -> None:
        """This task ended."""


@dataclass
class Summary:
    """How a run went."""

    tasks: int
    done: int = 0
    errors: int = 0
    interrupted: bool = False
    seconds: float = 0.0
    ran: Counter[Target] = field(default_factory=Counter)
    times: list[tuple[Task, float]] = field(default_factory=list)


def target_tasks(targets: Iterable[Target]) -> list[Task]:
    """Tasks that record what each backend declares about itself."""
    return [
        Task(
            suite=RUN,
            label=f"load {target.backend}/{target.variant}",
            function="kvassay.running.machine:describe_target",
            arguments={"backend": target.backend, "variant": target.variant},
            target=target,
            weight=0.1,
        )
        for target in targets
    ]


def opening_records(question: Question) -> list[Record]:
    """What a results file begins with: the question, the machine, what can run on it."""
    request = Record(
        suite=RUN,
        check="run.request",
        stage="",
        backend="",
        variant="",
        value=float(len(question.targets)),
        unit="targets",
        comparisons=1,
        detail=question.to_detail(),
    )
    return [request, machine_record(), *availability_records()]


def concluding_records(found: Iterable[Suite], records: Sequence[Record]) -> list[Record]:
    """What suites conclude from the records of all their tasks together."""
    return [record for suite in found for record in suite.conclude(records)]


def collect_tasks(found: Iterable[Suite], request: Request) -> list[Task]:
    """The tasks of suites for a request; a suite without any is an error, not a pass."""
    tasks: list[Task] = []
    for suite in found:
        mine = suite.tasks(request)
        if not mine:
            raise KvassayError(
                f"suite {suite.name!r} has no task for this request; widen backends or presets"
            )
        tasks += mine
    if not tasks:
        raise KvassayError("no suite was selected, so nothing would be measured")
    return tasks


def plan_tasks(found: Sequence[Suite], request: Request, timeout: float) -> list[Task]:
    """`collect_tasks` in a worker: planning asks backends what they support, which may kill.

    A target that does is planned without; the task that comes in its place meets the same end in
    its own worker, and so is recorded.
    """
    with IsolatedPool(1, timeout) as pool:

        def planned(part: Request) -> list[Task] | None:
            try:
                return pool.submit(collect_tasks, found, part).result()
            except (WorkerDied, WorkerTimeout):
                return None

        tasks = planned(request)
        if tasks is not None:
            return tasks
        deadly = {target for target in request.targets if _dies(planned, request, target)}
        left = tuple(target for target in request.targets if target not in deadly)
        tasks = planned(replace(request, targets=left)) if left else []
    if tasks is None:
        raise KvassayError("planning ended the process, though no backend alone does that")
    return tasks + [_planning(target, request) for target in request.targets if target in deadly]


def _dies(
    planned: Callable[[Request], list[Task] | None], request: Request, target: Target
) -> bool:
    try:
        return planned(replace(request, targets=(target,))) is None
    except KvassayError:  # a suite has nothing for this target alone
        return False


def _planning(target: Target, request: Request) -> Task:
    return Task(
        suite=RUN,
        label=f"plan {target.backend}/{target.variant}",
        function=f"{__name__}:replan",
        arguments={
            **{"backend": target.backend, "variant": target.variant},
            **{"presets": request.presets, "depth": request.depth, "scope": request.scope},
        },
        target=target,
        weight=1.0,
    )


def replan(
    backend: str, variant: str, presets: Sequence[str], depth: Depth, scope: str
) -> list[Record]:
    """Plan a target that ended the process in which it was planned: a second attempt, on record."""
    target = Target(backend, variant)
    request = Request((target,), tuple(presets), depth=depth, scope=scope)
    for suite in suites().values():
        suite.tasks(request)
    raise KvassayError(f"{backend}/{variant}: the process ended when suites were planned, once")


def run(
    tasks: Sequence[Task],
    sink: Sink,
    *,
    jobs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    executor: Executor | None = None,
    watch: Watch | None = None,
    answers: Answers | None = None,
    before: Sequence[Task] = (),
    depth: str = "",
) -> Summary:
    """Run tasks, short ones first, and give their records to `sink` as they come.

    Those that `answers` has already are not run again, and what others measure is kept there.

    Those that must run alone come last, one at a time, in a worker process whatever the executor.

    Without `executor` each task runs in one of `jobs` worker processes, is killed after `timeout`
    seconds, and may crash without harm to others. Any `concurrent.futures` executor does instead;
    limits are then its own, and if it breaks, its unfinished tasks run again in fresh processes
    of this machine, so that the culprit is known by name. Ctrl-C stops the run: tasks that did not
    end are recorded as not measured. Tasks that ended `before`, in another sitting, count as run.
    `depth` is that of the request, for the commands that run single tasks again.
    """
    began = time.monotonic()
    summary = Summary(len(tasks) + len(before), done=len(before))
    summary.ran.update(task.target for task in before if task.target and task.suite != RUN)
    left = dict.fromkeys(range(len(tasks)))
    state = _State(tasks, sink, watch, summary, left, answers, depth)
    try:
        state.recall()
        if executor is not None:
            state.drain(executor, alone=False)
        for alone in (False, True):
            if any(tasks[index].alone == alone for index in left):
                state.drain_isolated(1 if alone else jobs or default_jobs(), timeout, alone)
    except KeyboardInterrupt:
        summary.interrupted = True
        sink([_unfinished(tasks[index], depth) for index in left])
    sink(_totals([*tasks, *before], summary))
    summary.seconds = time.monotonic() - began
    return summary


@dataclass
class _State:
    """A run under way; `left` holds the indices of tasks without an answer."""

    tasks: Sequence[Task]
    sink: Sink
    watch: Watch | None
    summary: Summary
    left: dict[int, None]
    answers: Answers | None = None
    depth: str = ""

    def recall(self) -> None:
        """Take what was measured before."""
        if self.answers is None:
            return
        for index in list(self.left):
            kept = self.answers.find(self.tasks[index])
            if kept is not None:
                self._finish(index, Answer(kept.records, kept.seconds))

    def drain_isolated(self, jobs: int, timeout: float, alone: bool) -> None:
        """Run what is left and must run alone, or need not, in worker processes."""
        with IsolatedPool(jobs, timeout) as pool:
            try:
                self.drain(pool, alone)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def drain(self, executor: Executor, alone: bool) -> None:
        """Run what is left on an executor; tasks lost to a broken executor stay left."""
        mine = (index for index in self.left if self.tasks[index].alone == alone)
        order = _short_first([*mine], [task.weight for task in self.tasks])
        try:
            futures = {executor.submit(execute, self.tasks[index]): index for index in order}
        except BrokenExecutor:
            return
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_TICK, return_when=FIRST_COMPLETED)
            for future in done:
                self._take(futures[future], future)
            if self.watch:
                self.watch.running([self.tasks[futures[f]] for f in pending if f.running()])

    def _take(self, index: int, future: Future[Answer]) -> None:
        task = self.tasks[index]
        error = future.exception()
        if isinstance(error, BrokenExecutor):
            return
        answer = _failure(error) if error is not None else future.result()
        if self.answers is not None and not answer.error:
            self.answers.keep(task, answer.records, answer.seconds)
        self._finish(index, answer)

    def _finish(self, index: int, answer: Answer) -> None:
        task = self.tasks[index]
        again = command(task, self.depth)
        del self.left[index]
        self.summary.done += 1
        self.summary.errors += bool(answer.error)
        if task.target is not None and task.suite != RUN and not answer.error:
            self.summary.ran[task.target] += 1
        self.summary.times.append((task, answer.seconds))
        marked = _marked(task.target, answer.records)
        told = [r if r.reproduce else replace(r, reproduce=again) for r in marked]
        if answer.error:
            told.append(_error_record(task, answer, again))
        else:
            told.append(done_record(task, len(told), answer.seconds, answer.build))
        self.sink(told)
        if self.watch:
            self.watch.done(task, answer)


def _short_first(tasks: list[int], weights: Sequence[float]) -> list[int]:
    """The shorter half first, so that a run that is stopped early keeps something; of the others
    the longest first, so that no worker waits for the last one."""
    rising = sorted(tasks, key=lambda index: weights[index])
    half = len(rising) // 2
    return rising[:half] + rising[half:][::-1]


def execute(task: Task) -> Answer:
    """Run one task here and now; what it raises becomes the answer's error."""
    began = time.monotonic()
    try:
        records = task.run()
    except Exception as error:
        line = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {line[-1] if line else '(no message)'}"
        return Answer((), time.monotonic() - began, text, traceback.format_exc())
    seconds = time.monotonic() - began
    if not isinstance(records, (list, tuple)) or not all(isinstance(r, Record) for r in records):
        return Answer((), seconds, f"TypeError: returned {type(records).__name__}, not records")
    try:
        check_records(records)
    except RecordError as error:
        return Answer((), seconds, f"RecordError: {error}")
    if not records:
        return Answer((), seconds, "returned no record: it measured nothing")
    return Answer(tuple(records), seconds, build=build_of(task.target))


def _marked(target: Target | None, records: Sequence[Record]) -> Sequence[Record]:
    """Records of a variant that an emulator runs, with that in their detail."""
    if target is None:
        return records
    try:
        state = variants_of(provider(target.backend)).get(target.variant)
    except UnknownBackendError:  # records are no less true for it
        return records
    if state is None or state.status != "emulated":
        return records
    return [replace(r, detail={**r.detail, "emulated": state.reason}) for r in records]


def _failure(error: BaseException) -> Answer:
    if isinstance(error, WorkerDied):
        return Answer(error=f"crashed ({error.how})", evidence=error.stderr)
    if isinstance(error, WorkerTimeout):
        return Answer(error=f"timed out: {error}")
    return Answer(error=f"{type(error).__name__}: {error}")


def _run_record(
    target: Target | None, value: float, comparisons: int, *, preset: str = "", stage: str = "",
    subject: str = "", detail: dict[str, object] | None = None, reproduce: str = "",
) -> Record:  # fmt: skip
    return Record(
        suite=RUN,
        check="run.errors",
        stage=stage,
        backend=target.backend if target else "",
        variant=target.variant if target else "",
        value=value,
        unit="tasks",
        comparisons=comparisons,
        preset=preset,
        subject=subject,
        detail=detail or {},
        reproduce=reproduce,
    )


def _error_record(task: Task, answer: Answer, again: str) -> Record:
    detail: dict[str, object] = {"suite": task.suite, "error": answer.error}
    if answer.evidence:
        detail["evidence"] = answer.evidence
    return _run_record(
        task.target,
        1.0,
        1,
        preset=task.preset,
        stage=task.stage,
        subject=task.label,
        detail=detail,
        reproduce=again,
    )


def _unfinished(task: Task, depth: str) -> Record:
    return _run_record(
        task.target,
        0.0,
        0,
        preset=task.preset,
        stage=task.stage,
        subject=task.label,
        detail={"suite": task.suite, "error": "interrupted before it ended"},
        reproduce=command(task, depth),
    )


def _totals(tasks: Sequence[Task], summary: Summary) -> list[Record]:
    """Tasks that ran without an error, for each target: 0 of them is no evidence for anything."""
    targets = sorted(
        {task.target for task in tasks if task.target}, key=lambda t: (t.backend, t.variant)
    )
    return [
        _run_record(
            target,
            0.0,
            summary.ran[target],
            subject=RAN,
            detail={"slowest": _slowest(target, summary.times)},
        )
        for target in targets
    ]


def _slowest(target: Target, times: Iterable[tuple[Task, float]]) -> list[list[object]]:
    """The tasks of a target that took longest, in seconds."""
    mine = sorted((-seconds, task.label) for task, seconds in times if task.target == target)
    return [[label, round(-seconds, 2)] for seconds, label in mine[:_SLOWEST]]
