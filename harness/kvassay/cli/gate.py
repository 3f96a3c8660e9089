"""`kvassay gate`, and a command for each suite that is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from ..errors import KvassayError
from ..judging.gate import Question
from ..model_names import DEFAULT_MODEL
from ..suite import DEFAULT_TIMEOUT, Depth
from .parts.options import (
    AnswersPath,
    ArrayCodec,
    Backends,
    Baseline,
    ClaimedBits,
    CodecOptions,
    Dask,
    DepthName,
    HfCache,
    HfOptions,
    Jobs,
    JudgeNamed,
    JunitPath,
    Library,
    MarkdownPath,
    Model,
    Presets,
    Profiles,
    Quick,
    Quiet,
    RecordsPath,
    ReportPath,
    Resume,
    ScopeName,
    Source,
    SuiteQuick,
    Suites,
    SuiteScope,
    Tensors,
    Timeout,
    Variants,
    Wasm,
)
from .parts.terminal import Verbose, is_verbose


def gate(
    context: typer.Context,
    backend: Backends = None,
    library: Library = None,
    wasm: Wasm = None,
    hf_cache: HfCache = None,
    hf_options: HfOptions = None,
    codec: ArrayCodec = None,
    codec_options: CodecOptions = None,
    claimed_bits: ClaimedBits = None,
    variant: Variants = None,
    preset: Presets = None,
    profile: Profiles = None,
    judge_named: JudgeNamed = False,
    suite: Suites = None,
    scope: ScopeName = "default",
    quick: Quick = False,
    depth: DepthName = None,
    records: RecordsPath = None,
    report: ReportPath = None,
    junit: JunitPath = None,
    markdown: MarkdownPath = None,
    baseline: Baseline = None,
    source: Source = None,
    tensors: Tensors = None,
    model: Model = DEFAULT_MODEL,
    jobs: Jobs = None,
    dask: Dask = None,
    answers: AnswersPath = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    resume: Resume = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Judge backends by all rules: PASS, REJECT or NOT MEASURED, with evidence.

    Writes results.jsonl and report.html, or the paths given. Scope full measures in full depth.
    Formats of a backend's own are judged by the suites for them.
    """
    from ..running.targets import choose_targets  # numpy and processes: not for a prompt
    from .parts import measuring, selecting
    from .parts.own_formats import class_names, named_formats, own_formats

    outputs = measuring.Outputs(report or Path("report.html"), junit, markdown, is_verbose(context))
    if source is not None:
        asked = (backend, library, wasm, hf_cache, codec, variant, preset, profile, tensors)
        if any((records, quick, depth, suite, resume, *asked)):
            raise KvassayError(
                "--from judges what was recorded: give only --scope, --baseline and files to write"
            )
        return measuring.judge_again(source, scope, context, baseline, outputs)
    preset = [*(preset or ()), *selecting.choose_profiles(profile or (), model)]
    measuring.check_judge_named(judge_named, preset)
    depth = _depth(quick, depth) or ("full" if scope == "full" else "default")
    classes = class_names(hf_cache, hf_options, codec, codec_options, claimed_bits)
    backend = [*(backend or ()), *classes]
    named, rejected = measuring.named_backends(backend, library, wasm, timeout)
    targets = tuple(one.target for one in rejected)
    if named or not rejected:
        targets += choose_targets(named, variant or [], best_only=quick or not named)
    if quick and not named:
        targets = selecting.without_reference(targets)
    if formats := own_formats(targets, timeout) if named else {}:
        presets = named_formats(preset, formats)
        suite = suite or sorted({formats[name] for name in presets})
    elif quick and not preset:
        presets = selecting.product_presets()
    else:
        presets = selecting.choose_presets(preset)
    question = Question(
        scope=scope,
        targets=targets,
        presets=presets,
        suites=tuple(suite or ()),
        depth=depth,
        baseline=str(baseline or ""),
        tensors=measuring.checked_tensors(tensors),
        judge_named=judge_named,
    )
    records = records or Path("results.jsonl")
    how = measuring.Execution(
        records, outputs, model, jobs, timeout, quiet, baseline, resume, answers, dask
    )
    return measuring.measure(question, how, rejected)


def _depth(quick: bool, depth: Depth | None) -> Depth | None:
    """What was asked for; KvassayError for both at once."""
    if quick and depth:
        raise KvassayError("--quick and --depth contradict each other: give one of them")
    return "quick" if quick else depth


def suite_command(name: str) -> Callable[..., int]:
    """The command of a suite."""

    def command(
        context: typer.Context,
        backend: Backends = None,
        library: Library = None,
        wasm: Wasm = None,
        variant: Variants = None,
        preset: Presets = None,
        profile: Profiles = None,
        judge_named: JudgeNamed = False,
        scope: SuiteScope = None,
        quick: SuiteQuick = False,
        depth: DepthName = None,
        records: RecordsPath = None,
        report: ReportPath = None,
        model: Model = DEFAULT_MODEL,
        jobs: Jobs = None,
        dask: Dask = None,
        answers: AnswersPath = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        tensors: Tensors = None,
        resume: Resume = False,
        quiet: Quiet = False,
        verbose: Verbose = False,
    ) -> int:
        from ..running.targets import choose_targets  # numpy and processes: not for a prompt
        from .parts import measuring, selecting

        (suite,) = selecting.choose_suites([name])
        if resume and not records:
            raise KvassayError("--resume takes up a file of records: name it with --records")
        preset = [*(preset or ()), *selecting.choose_profiles(profile or (), model)]
        measuring.check_judge_named(judge_named, preset)
        depth = _depth(quick, depth) or "full"
        named, rejected = measuring.named_backends(backend, library, wasm, timeout)
        targets = tuple(one.target for one in rejected)
        if named or not rejected:
            targets += choose_targets(named, variant or [], emulated=suite.emulated_too)
        question = Question(
            scope=scope or suite.command_scope,
            targets=targets,
            presets=measuring.presets_of(suite, preset, targets, timeout),
            suites=(name,),
            depth=depth,
            tensors=measuring.checked_tensors(tensors),
            judge_named=judge_named,
        )
        outputs = measuring.Outputs(report, verbose=is_verbose(context))
        how = measuring.Execution(
            records, outputs, model, jobs, timeout, quiet, None, resume, answers, dask
        )
        return measuring.measure(question, how, rejected)

    return command
