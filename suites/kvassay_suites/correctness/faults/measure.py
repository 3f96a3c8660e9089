"""Runs a case against a target: one record, 0 if the backend stands it, else 1."""

from __future__ import annotations

import traceback
from typing import Final

from kvassay.records import Record

from ...common.offered import NotOffered
from ...common.specs import record
from .case import CASES, Findings, Subject, described

#: Failures told in a record; the rest are counted.
_TOLD: Final = 6


def measure(backend: str, variant: str, number: int) -> list[Record]:
    """The record of fault `number`; what was expected and what was found is in its detail."""
    one = CASES[number]
    find = Findings()
    subject = Subject(backend, variant)
    try:
        one.run(find, subject)
    except NotOffered as refusal:
        find.holds(bool(str(refusal)), "a spec that is not offered must be refused with a reason")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        find.holds(False, f"no {type(error).__name__}: {error} ({last.name}, line {last.lineno})")
    return [
        record(
            "correctness.faults",
            one.stage,
            backend,
            variant,
            float(bool(find.failures)),
            "cases",
            find.asserted,
            subject=f"fault {one.number}: {one.name}",
            detail={
                "case": ". Expected: ".join(described(one)),
                "expected, and found": find.failures[:_TOLD],
                "failed": len(find.failures),
                **({"finding": find.failures[0]} if find.failures else {}),
            },
        )
    ]
