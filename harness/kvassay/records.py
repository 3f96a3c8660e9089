"""Records: one measured fact each, one JSON line each."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .errors import RecordError
from .json_text import read_json
from .writing import is_stream, open_stream, write_whole

RECORD_SCHEMA: Final = 1


@dataclass(frozen=True)
class Record:
    """One measured fact.

    `check` names what was measured (`parity.mismatches`), `value` is the figure in `unit`, and
    `comparisons` how many
    elementary comparisons or samples it rests on: 0 means that nothing was measured, which never
    passes.
    `preset` is a preset's name, or "" where the fact holds for the backend whatever the preset
    (then `subject` says for which
    spec). `stage` is one of the stages in rules.toml. `detail` holds evidence: small JSON data.
    """

    suite: str
    check: str
    stage: str
    backend: str
    variant: str
    value: float
    unit: str
    comparisons: int
    preset: str = ""
    subject: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    reproduce: str = ""
    schema: int = RECORD_SCHEMA

    def to_json(self) -> str:
        """One line; NaN and infinities as strings, since JSON has none."""
        data = dataclasses.asdict(self)
        data["detail"] = dict(self.detail)
        return json.dumps(_jsonable(data), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes, where: str = "record") -> Record:
        """Read one line; raises RecordError naming what is wrong."""
        try:
            data = read_json(line)
        except ValueError as error:
            raise RecordError(f"{where}: not JSON ({error})") from None
        return cls.from_data(data, where)

    @classmethod
    def from_data(cls, data: Any, where: str = "record") -> Record:
        """A record of what its JSON says; raises RecordError naming what is wrong."""
        if not isinstance(data, dict):
            raise RecordError(f"{where}: a record is an object, not {type(data).__name__}")
        schema = data.get("schema")
        if schema != RECORD_SCHEMA or not isinstance(schema, int) or schema is True:
            raise RecordError(
                f"{where}: record schema {schema!r}, this kvassay reads {RECORD_SCHEMA}"
            )
        if unknown := sorted(set(data) - set(_FIELDS)):
            raise RecordError(f"{where}: unknown field {unknown[0]!r}")
        if missing := sorted(set(_NEEDED) - set(data)):
            raise RecordError(f"{where}: no field {missing[0]!r}")
        if isinstance(data["value"], str) and data["value"] in _WRITTEN:
            data = {**data, "value": float(data["value"])}
        try:
            record = cls(**data)
            check_form(record)
            return dataclasses.replace(record, value=float(record.value))
        except (RecordError, OverflowError) as error:
            raise RecordError(f"{where}: {error}") from None


_FIELDS: Final = {item.name: item for item in dataclasses.fields(Record)}
_NEEDED: Final = ("suite", "check", "stage", "backend", "variant", "value", "unit", "comparisons")
_TEXTS: Final = (*(name for name, item in _FIELDS.items() if item.type == "str"),)
#: Values that JSON has no number for, as they are written.
_WRITTEN: Final = ("nan", "inf", "-inf")


def check_form(record: Record) -> None:
    """RecordError where a field is not of its type, whoever made the record."""
    for name in _TEXTS:
        if not isinstance(getattr(record, name), str):
            raise RecordError(f"{name} is {getattr(record, name)!r}, not text")
    for name in ("suite", "check"):
        if not getattr(record, name):
            raise RecordError(f"{name} is empty")
    value, comparisons = record.value, record.comparisons
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise RecordError(f"value is {value!r}, not a number")
    if not isinstance(comparisons, numbers.Integral) or isinstance(comparisons, bool):
        raise RecordError(f"comparisons is {comparisons!r}, not a whole number")
    if not 0 <= comparisons < 1 << 63:
        raise RecordError(f"comparisons is {comparisons}, which is no count")
    if not isinstance(record.detail, Mapping):
        raise RecordError(f"detail is {record.detail!r}, not an object")


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if hasattr(value, "item") and callable(value.item):
        return _jsonable(value.item())
    return value


class RecordWriter:
    """Writes records to a JSON-lines file, flushed as they come, so that an interrupted run keeps
    them.

    A file of that name is replaced, but not before `first` is written: no moment loses both.
    append: behind what the file holds already, instead of anew. Raises WriteError, OSError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        first: Iterable[Record] = (),
        append: bool = False,
    ) -> None:
        if append or is_stream(path):
            self._stream = open_stream(path)
            self.write(first)
        else:
            write_whole("records", path, map(_line, first))
            self._stream = open_stream(path)

    def write(self, records: Iterable[Record]) -> None:
        """Append records and flush."""
        for record in records:
            self._stream.write(_line(record))
        self._stream.flush()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.close()


def _line(record: Record) -> bytes:
    return f"{record.to_json()}\n".encode()


def read_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Records of a JSON-lines file; raises RecordError with the line number."""
    with Path(path).open("rb") as stream:
        yield from records_of(stream, path)


def records_of(lines: Iterable[bytes], path: str | os.PathLike[str]) -> Iterator[Record]:
    """Records of the lines of a file; `path` is what errors call it."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield Record.from_json(line, f"{os.fspath(path)}:{number}")
