"""The options that commands which judge have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...judging.rules import Scope
from ...suite import Depth
from .completing import (
    complete_backends,
    complete_models,
    complete_presets,
    complete_profiles,
    complete_suites,
    complete_variants,
)

Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        help="Backend name or module:Class; repeatable (default: all but those on request).",
        autocompletion=complete_backends,
    ),
]
Library = Annotated[
    list[Path] | None,
    typer.Option("--library", help="A shared library with the functions of kvassay.h; repeatable."),
]
Wasm = Annotated[
    list[Path] | None,
    typer.Option("--wasm", help="A WebAssembly module of one's own, in a sandbox; repeatable."),
]
HfCache = Annotated[
    list[str] | None,
    typer.Option("--hf-cache", help="A transformers.Cache, package.module:Class; repeatable."),
]
HfOptions = Annotated[
    list[str] | None,
    typer.Option("--hf-options", help="NAME=VALUE, a parameter of the cache; repeatable."),
]
ArrayCodec = Annotated[
    list[str] | None,
    typer.Option(
        "--codec", help="A class that encodes and decodes arrays, package.module:Class; repeatable."
    ),
]
CodecOptions = Annotated[
    list[str] | None,
    typer.Option("--codec-options", help="NAME=VALUE, a parameter of the codec; repeatable."),
]
ClaimedBits = Annotated[
    float | None,
    typer.Option(
        help="Bits a value that the cache or codec says it holds (default: 16, those of fp16)."
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        help="Variant; repeatable (default: all that run; of a gate without --backend the best).",
        autocompletion=complete_variants,
    ),
]
JudgeNamed = Annotated[
    bool,
    typer.Option("--judge-named", help="Judge the presets that are named, baselines too."),
]
Presets = Annotated[
    list[str] | None,
    typer.Option(
        "--preset", help="Preset; repeatable (default: all).", autocompletion=complete_presets
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        help="A profile by name or file, judged like a preset; repeatable.",
        autocompletion=complete_profiles,
    ),
]
Suites = Annotated[
    list[str] | None,
    typer.Option(
        "--suite",
        help="Only this suite and its rules; repeatable.",
        autocompletion=complete_suites,
    ),
]
RecordsPath = Annotated[
    Path | None, typer.Option("--records", help="Write records to this file, one JSON line each.")
]
ReportPath = Annotated[Path | None, typer.Option("--report", help="Write the HTML report here.")]
JunitPath = Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here.")]
MarkdownPath = Annotated[
    Path | None, typer.Option("--markdown", help="Write a summary in Markdown here.")
]
Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", help="Records of an earlier run: fail where figures got worse."),
]
Source = Annotated[
    Path | None, typer.Option("--from", help="Judge the records of this file; measure nothing.")
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="Model name, or the path of a GGUF file.",
        autocompletion=complete_models,
    ),
]
ArmModel = Annotated[
    str, typer.Option(help="smollm2-135m or a GGUF file.", autocompletion=complete_models)
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Worker processes (default: cores, at most 2).")
]
Timeout = Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds a task may take.")]
SuiteScope = Annotated[
    Scope | None,
    typer.Option("--scope", help="Which rules must be measured (default: the suite's own scope)."),
]
ScopeName = Annotated[Scope, typer.Option("--scope", help="Which rules must be measured.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Smallest grids, best variants, product presets; says how long it takes.",
    ),
]
SuiteQuick = Annotated[bool, typer.Option("--quick", help="The same as --depth quick.")]
DepthName = Annotated[Depth | None, typer.Option("--depth", help="How thoroughly suites measure.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Tensors = Annotated[
    Path | None,
    typer.Option("--tensors", help="Judge on this file of captured q, k and v as well."),
]
AnswersPath = Annotated[
    Path | None,
    typer.Option("--answers", help="Keep answers in this file; measure only what it lacks."),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Take up an interrupted run: keep what its records hold."),
]
Dask = Annotated[
    str | None,
    typer.Option("--dask", help="Run tasks on a dask cluster, e.g. tcp://scheduler:8786."),
]
