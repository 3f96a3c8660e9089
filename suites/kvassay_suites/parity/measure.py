"""What parity tasks call: run cases on a target and give records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import kvassay
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.registry import REFERENCE

from ..common.specs import record
from .plans import CROSS
from .replay import command, write_replay
from .scenario import Case, Result, run_case


def measure(
    backend: str, variant: str, stage: str, subject: str, cases: Sequence[Case], preset: str = ""
) -> list[Record]:
    """Records of some cases: mismatches (cross-read ones apart), or the error of a bounded one."""
    target, reference = kvassay.load(backend, variant), kvassay.load(REFERENCE)
    totals: dict[str, Result] = {}
    replays: dict[str, str] = {}
    for case in cases:
        check = "parity.cross_read" if case["plan"] == CROSS else "parity.mismatches"
        found = run_case(target, reference, case)
        if found.first is not None and check not in replays and target.exact:
            replays[check] = write_replay(backend, variant, case, found.first)
        totals.setdefault(check, Result()).add(found)
    if not target.exact:
        return [_bounded(target, backend, variant, stage, subject, totals, preset)]
    return [
        record(
            check,
            stage,
            backend,
            variant,
            found.mismatches,
            "values",
            found.comparisons,
            subject=subject,
            preset=preset,
            detail={"cases": len(cases), "first": found.first},
            reproduce=command(replays[check]) if check in replays else "",
        )
        for check, found in totals.items()
    ]


def _bounded(
    target: Backend,
    backend: str,
    variant: str,
    stage: str,
    subject: str,
    totals: Mapping[str, Result],
    preset: str,
) -> Record:
    whole = Result()
    for found in totals.values():
        whole.add(found)
    bound = target.bound or 0.0
    return record(
        "parity.relative_error",
        stage,
        backend,
        variant,
        whole.relative_error / bound if bound else math.inf,
        "of the bound",
        whole.comparisons,
        subject=subject,
        preset=preset,
        detail={"relative_error": whole.relative_error, "bound": bound, "first": whole.first},
    )
