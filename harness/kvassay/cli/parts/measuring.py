"""A run of suites from question to verdict: measure, judge, print, write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from ...backend.trials import trials_within
from ...errors import KvassayError
from ...judging.evidence import end_record, read_run
from ...judging.gate import Judgement, Question, judge
from ...judging.rules import Scope
from ...model_names import DEFAULT_MODEL
from ...presets import PRESETS, STORED_MODES
from ...records import Record, RecordWriter
from ...running.answers import Answers
from ...running.cluster import cluster
from ...running.resuming import TakenUp, builds_of, read_cut_short, take_up
from ...running.runner import (
    collect_tasks,
    concluding_records,
    opening_records,
    plan_tasks,
    run,
    target_tasks,
)
from ...running.workers import default_jobs
from ...suite import Request, Suite, Target, Task, wanted
from ...writing import check_outputs, is_stream
from .files import TRIALS, Rejected, try_files
from .own_formats import choose_formats
from .progress import watching
from .selecting import choose_presets, choose_suites, is_foreign
from .tables import print_judgement, print_variants
from .terminal import errors, output


@dataclass(frozen=True)
class Outputs:
    """Files that say what was judged, and whether the terminal shows every record."""

    report: Path | None
    junit: Path | None = None
    markdown: Path | None = None
    verbose: bool = False

    @property
    def files(self) -> dict[str, Path | None]:
        """Their paths by the options that name them."""
        return {"--report": self.report, "--junit": self.junit, "--markdown": self.markdown}


@dataclass(frozen=True)
class Execution:
    """How to run, as opposed to what."""

    records: Path | None
    outputs: Outputs
    model: str
    jobs: int | None
    timeout: float
    quiet: bool
    baseline: Path | None = None
    resume: bool = False
    answers: Path | None = None
    dask: str | None = None


def check_judge_named(judge_named: bool, preset: list[str] | None) -> None:
    """KvassayError where baselines are to be judged and no preset is named."""
    if judge_named and not preset:
        raise KvassayError("--judge-named judges the presets that --preset names: name some")


def named_backends(
    backend: list[str] | None,
    library: list[Path] | None,
    wasm: list[Path] | None,
    timeout: float,
) -> tuple[list[str], list[Rejected]]:
    """The backends that are named, by whichever door, and what of them failed at it."""
    with trials_within(timeout):
        files, rejected = try_files({"library": library or (), "wasm": wasm or ()})
    return [*(backend or ()), *files], rejected


def presets_of(
    suite: Suite, names: list[str], targets: tuple[Target, ...], timeout: float
) -> tuple[str, ...]:
    """What a suite's command calls presets; of formats of its own only a backend knows."""
    if suite.judges == "formats":
        return choose_formats(targets, names, suite.name, timeout)
    return choose_presets(names, STORED_MODES if suite.judges == "stored" else PRESETS)


def measure(question: Question, how: Execution, rejected: Sequence[Rejected] = ()) -> int:
    """Run the suites, judge, print, write; the exit status. `rejected` are targets of the question
    that failed already: nothing more is run on them."""
    _check_worth_running(question, how.model)
    check_outputs(
        {"--records": how.records, "--answers": how.answers, **how.outputs.files},
        {
            "--baseline": how.baseline,
            "--tensors": question.tensors or None,
            **_files(question.targets),
        },
    )
    earlier = _read_baseline(how.baseline)
    lost = {one.target for one in rejected}
    request = Request(
        targets=tuple(target for target in question.targets if target not in lost),
        presets=question.presets,
        depth=question.depth,
        scope=question.scope,
        model=how.model,
        tensors=question.tensors,
    )
    if how.records and not is_stream(how.records):  # replays belong beside it
        os.environ.setdefault("KVASSAY_REPLAY_DIR", str(how.records.resolve().parent))
    tasks = target_tasks(request.targets)
    found = [
        suite
        for suite in choose_suites(question.suites)
        if question.suites or wanted(suite, request)
    ]
    for suite in found:
        if suite.needs_tensors and not request.tensors:
            raise KvassayError(f"suite {suite.name} needs captured tensors: give --tensors FILE")
    if request.targets and any(suite.needs_model for suite in found):
        _check_model(how.model)
    foreign = any(map(is_foreign, request.targets))
    if request.targets:
        plan = plan_tasks(found, request, how.timeout) if foreign else collect_tasks(found, request)
        tasks += plan
    taken = _taken_up(question, how, tasks)
    opening = [*opening_records(question), *(one.record for one in rejected), *taken.records]
    records: list[Record] = list(opening)
    with ExitStack() as stack:
        writer = stack.enter_context(RecordWriter(how.records, opening)) if how.records else None

        def keep(new: Iterable[Record]) -> None:
            new = list(new)
            records.extend(new)
            if writer:
                writer.write(new)

        jobs = how.jobs or default_jobs()
        watch = stack.enter_context(watching(taken.left, errors(), how.quiet, jobs))
        summary = run(
            taken.left,
            keep,
            jobs=jobs,
            timeout=how.timeout,
            watch=watch,
            before=taken.done,
            depth=question.depth,
            executor=stack.enter_context(cluster(how.dask)) if how.dask else None,
            answers=stack.enter_context(Answers(how.answers)) if how.answers else None,
        )
        keep(concluding_records(found, records))
        keep(_held_to(earlier, records, question))
        keep([end_record(records)])
    judgement = judge(records, question)
    _show(judgement, records, how.outputs, summary.interrupted)
    for one in rejected:
        rejection = f"rejected: {one.target.backend} {one.target.variant}: {one.reason}"
        output().print(rejection, markup=False, soft_wrap=True)
    if how.records:
        output().print(f"records: {how.records}", markup=False, soft_wrap=True)
    if summary.interrupted:
        kept = f"; {how.records} holds what was measured, --resume goes on" if how.records else ""
        raise KvassayError(f"interrupted: {summary.done} of {summary.tasks} tasks ended{kept}")
    return _status(judgement)


def _files(targets: Iterable[Target]) -> dict[str, str]:
    """Paths of the libraries and modules among the targets, by option."""
    named = (target.backend.partition(":") for target in targets)
    return {f"--{scheme} {path}": path for scheme, _, path in named if scheme in TRIALS}


def _taken_up(question: Question, how: Execution, tasks: list[Task]) -> TakenUp:
    """What an earlier sitting measured already, where there was one to take up."""
    if not (how.resume and how.records):
        return TakenUp((), (), tuple(tasks))
    earlier = read_cut_short(how.records)
    taken = take_up(earlier, question, tasks, builds_of(question.targets, how.timeout))
    if not how.quiet:
        said = f"taken up: {len(taken.done)} of {len(tasks)} tasks had ended"
        errors().print(said, markup=False, soft_wrap=True)
    return taken


def _check_worth_running(question: Question, model: str) -> None:
    """Refuse at once what would be refused, or fail, only after minutes of measuring."""
    if not any(question.judges(name) for name in question.presets):
        names = ", ".join(question.presets)
        raise KvassayError(
            f"only baselines and controls ({names}) were asked for: they are not judged; "
            f"add a preset that is, or --judge-named"
        )
    if model != DEFAULT_MODEL:
        _check_model(model)


def _check_model(name: str) -> None:
    """ModelError where the model is not there, with the line that installs it."""
    from ...models import locate  # slow to import

    locate(name)


def checked_tensors(path: Path | None) -> str:
    """The path of a file that is fit to judge on, "" for none; TensorsError says what is wrong.

    Everything in it is read here, once: what is wrong with a file is no fault of a backend.
    """
    if path is None:
        return ""
    from ...captured import open_captured  # brings the models: slow to import

    open_captured(path).check_values()
    return str(path.resolve())


def judge_again(
    source: Path, scope: Scope, context: typer.Context, baseline: Path | None, outputs: Outputs
) -> int:
    """Judge the records of a file, print and write; the exit status."""
    check_outputs(outputs.files, {"--from": source, "--baseline": baseline})
    earlier = _read_baseline(baseline)
    records = read_run(source)
    question = Question.of(records)
    if context.get_parameter_source("scope").name != "DEFAULT":  # type: ignore[union-attr]
        question = replace(question, scope=scope)
    if earlier is not None:  # instead of what an earlier baseline said
        records = [record for record in records if record.check != "run.regressions"]
        question = replace(question, baseline=str(baseline))
        records += _held_to(earlier, records, question)
    judgement = judge(records, question)
    _show(judgement, records, outputs)
    return _status(judgement)


def _read_baseline(path: Path | None) -> list[Record] | None:
    return None if path is None else read_run(path)


def _held_to(
    earlier: list[Record] | None, records: list[Record], question: Question
) -> list[Record]:
    if earlier is None:
        return []
    if not question.held:
        said = (
            f"baseline: the suites asked for ({', '.join(question.suites)}) have no tracked figure"
        )
        errors().print(said, markup=False, soft_wrap=True)
    from ...judging.compare import regression_records  # statistics: slow to import

    return regression_records(earlier, records, question)


def _status(judgement: Judgement) -> int:
    """The exit status; where nothing could be judged, an error says why."""
    if judgement.problem:
        raise KvassayError(judgement.problem)
    return judgement.exit_status


def _show(
    judgement: Judgement, records: list[Record], outputs: Outputs, interrupted: bool = False
) -> None:
    if outputs.report:
        from ...report import write_report  # draws plots: slow to import

        write_report(outputs.report, judgement, records)
    if outputs.junit:
        from ...report.junit import write_junit

        write_junit(outputs.junit, judgement)
    if outputs.markdown:
        from ...report.markdown import write_markdown

        write_markdown(outputs.markdown, judgement, records)
    print_variants(output(), judgement, records)
    print_judgement(output(), judgement, outputs.verbose, interrupted)
    for name in ("report", "junit", "markdown"):
        if path := getattr(outputs, name):
            output().print(f"{name}: {path}", markup=False, soft_wrap=True)
