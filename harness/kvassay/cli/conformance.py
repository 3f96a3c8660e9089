"""`kvassay conformance PACKAGE`: whether a package's backends do what the protocol says."""

from __future__ import annotations

from typing import Annotated

import typer

from ..judging.gate import Question
from ..model_names import DEFAULT_MODEL
from ..registry import backends_of, load, provider, variants_of
from ..running.targets import choose_targets
from ..suite import DEFAULT_TIMEOUT, Depth
from .parts.measuring import Execution, Outputs, check_judge_named, measure
from .parts.options import (
    Jobs,
    JudgeNamed,
    Presets,
    Quiet,
    RecordsPath,
    ReportPath,
    Timeout,
    Variants,
)
from .parts.selecting import choose_presets
from .parts.terminal import Verbose, is_verbose, output

#: What a backend owes to everybody, whatever it is good for.
SUITES = ("correctness", "parity")


def conformance(
    context: typer.Context,
    package: Annotated[
        str, typer.Argument(help="An installed package with backends, or module:Class.")
    ],
    variant: Variants = None,
    preset: Presets = None,
    judge_named: JudgeNamed = False,
    depth: Annotated[Depth, typer.Option("--depth", help="How thoroughly.")] = "default",
    records: RecordsPath = None,
    report: ReportPath = None,
    jobs: Jobs = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Check every backend of a package: registration, then the suites correctness and parity.

    Exit status as for gate: 0 conforms, 1 does not, 2 something was not measured.
    """
    check_judge_named(judge_named, preset)
    names = [package] if ":" in package else backends_of(package)
    question = Question(
        scope="default",
        targets=choose_targets(names, variant or []),
        presets=choose_presets(preset or []),
        suites=SUITES,
        depth=depth,
        judge_named=judge_named,
    )
    for name in names:
        found = provider(name)
        states = variants_of(found)
        ready = next(key for key, state in states.items() if state.runs)
        loaded = load(name, ready)
        bound = "by each format" if loaded.bound is None else f"{loaded.bound:g}"
        promise = "exact" if loaded.exact else f"bounded by {bound}"
        variants = ", ".join(f"{key} {state.status}" for key, state in states.items())
        line = f"{name}: protocol {found.protocol}, {promise}, variants: {variants}"
        output().print(line, markup=False, soft_wrap=True)
    outputs = Outputs(report, verbose=is_verbose(context))
    return measure(question, Execution(records, outputs, DEFAULT_MODEL, jobs, timeout, quiet))
