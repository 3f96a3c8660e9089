"""Faults seen in the field, each as a small case that a cache must handle or refuse by name."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Final

import kvassay
from kvassay.errors import KvassayError
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common.offered import NotOffered, usual_codecs
from ..common.specs import ONE_LAYER, record
from . import fault_data, fault_input, fault_state
from .fault_case import Fault

CASES: Final[Mapping[str, Callable[[Backend], None]]] = {
    **fault_data.CASES,
    **fault_state.CASES,
    **fault_input.CASES,
}


def measure(backend: str, variant: str, names: list[str]) -> list[Record]:
    """How many of these cases go wrong, of those whose specs the backend executes."""
    wrong, unasked = {}, []
    for name in names:
        try:
            with usual_codecs(kvassay.load(backend, variant)) as loaded:
                CASES[name](loaded)
        except NotOffered:
            unasked.append(name)
        except Fault as fault:
            wrong[name] = str(fault)
        except KvassayError as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            wrong[name] = f"{type(error).__name__}: {error} ({last.name}, line {last.lineno})"
    return [
        record(
            "correctness.faults",
            ONE_LAYER,
            backend,
            variant,
            len(wrong),
            "cases",
            len(names) - len(unasked),
            subject=", ".join(names),
            detail={**wrong, **({"not offered": unasked} if unasked else {})},
        )
    ]
