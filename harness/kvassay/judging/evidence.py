"""What records must be to be evidence: nothing is judged that cannot be explained.

Form and types are checked where a line is read (`kvassay.records`). Here: values that a measurement
can have, what the runner's own records say, and totals, so that a record that was lost is noticed.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..errors import RecordError
from ..records import Record, check_form, read_records
from .rules import Rule, Rulebook, matches, rulebook

#: The suite that the runner's own records belong to.
RUN: Final = "run"
#: A task that ended well; its detail counts the records before it that it made.
DONE: Final = "run.task"
#: The last record of a run: its value counts those before it.
END: Final = "run.records"
#: Subject of the record that counts the tasks of a target that ended well.
RAN: Final = "tasks that ran"
#: What the runner writes between the records of two tasks.
_BETWEEN: Final = frozenset(("run.request", "run.machine", "run.availability", "run.errors", DONE))
#: Types of the details that are read, where they are given.
_DETAILS: Final[Mapping[str, Mapping[str, type]]] = {
    "run.target": {"exact": bool, "build_id": str, "sources": str, "evidence": dict},
    DONE: {"records": int, "suite": str, "digest": str, "build": str},
}


def read_run(path: str | os.PathLike[str]) -> list[Record]:
    """The records of a file, each of them evidence and none of them missing.

    Raises RecordError, OSError.
    """
    records = list(read_records(path))
    try:
        check_records(records)
        _check_totals(records)
    except RecordError as error:
        raise RecordError(f"{os.fspath(path)}: {error}") from None
    return records


def check_records(records: Iterable[Record], book: Rulebook | None = None) -> None:
    """RecordError for a record that no measurement gives, naming it."""
    book = book or rulebook()
    rules = defaultdict(list)
    for rule in book.rules:
        rules[rule.check].append(rule)
    stages = {stage.name for stage in book.stages}
    declared: dict[tuple[str, str], Record] = {}
    for record in records:
        check_record(record, rules[record.check], stages)
        if record.check == "run.target":
            who = (record.backend, record.variant)
            if declared.setdefault(who, record).detail != record.detail:
                raise RecordError(f"{_name(record)}: it is declared twice, and differently")


def check_record(record: Record, rules: Sequence[Rule], stages: Iterable[str]) -> None:
    """RecordError for a record that no measurement gives; `rules` are those of its check."""
    try:
        check_form(record)
    except RecordError as error:
        raise RecordError(f"{_name(record)}: {error}") from None
    if record.suite == RUN and not record.check.startswith(f"{RUN}."):
        raise RecordError(f"{_name(record)}: it is no record of the runner")
    if record.suite != RUN and record.stage not in stages:
        known = ", ".join(sorted(stages))
        raise RecordError(f"{_name(record)}: no stage {record.stage!r}; stages: {known}")
    for rule in rules:
        if record.comparisons and matches(rule, record) and not rule.explains(record.value):
            least, most = rule.possible
            raise RecordError(
                f"{_name(record)}: value {record.value:g} {record.unit} cannot be measured "
                f"({least:g} .. {most:g}, and no infinity that passes)"
            )
    for name, kind in _DETAILS.get(record.check, {}).items():
        value = record.detail.get(name)
        if name in record.detail and type(value) is not kind:
            raise RecordError(f"{_name(record)}: {name} is {value!r}, not {kind.__name__}")


def end_record(records: Sequence[Record]) -> Record:
    """What ends the records of a run."""
    count = len(records)
    return Record(RUN, END, "", "", "", float(count), "records", max(1, count))


def _check_totals(records: Sequence[Record]) -> None:
    """RecordError where the counts that the runner left do not agree with what is there."""
    if sum(record.check == "run.request" for record in records) > 1:
        raise RecordError("two questions (run.request): the records of two runs in one file")
    since = 0
    ended: Counter[tuple[str, str]] = Counter()
    for number, record in enumerate(records):
        if record.check == DONE:
            said = record.detail.get("records")
            if said != since:
                raise RecordError(f"{_name(record)}: it left {said!r} records, {since} are here")
            ended[record.backend, record.variant] += record.detail.get("suite") != RUN
        if record.check == END and (record.value, len(records) - 1) != (number, number):
            where = "" if number == len(records) - 1 else f", {len(records) - 1 - number} behind it"
            raise RecordError(f"{END}: {record.value:g} before it, {number} are here{where}")
        since = 0 if record.check in _BETWEEN else since + 1
    for record in records if ended else ():
        here = ended[record.backend, record.variant]
        if record.check == "run.errors" and record.subject == RAN and record.comparisons != here:
            raise RecordError(f"{_name(record)}: {record.comparisons} tasks, {here} are here")
    if ended and records[-1].check != END:
        raise RecordError(f"cut short: it does not end with {END}; --resume goes on with the run")


def _name(record: Record) -> str:
    whose = " ".join(filter(None, (record.backend, record.variant, record.preset, record.subject)))
    return f"record {record.check}{f' of {whose}' if whose else ''}"


def detail_of(records: Iterable[Record], check: str) -> dict[str, Any]:
    """The detail of the first record of a check, empty where there is none."""
    return next((dict(record.detail) for record in records if record.check == check), {})
