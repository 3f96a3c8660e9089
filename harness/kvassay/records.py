"""Records: one measured fact each, one JSON line each."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .errors import RecordError

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
    def from_json(cls, line: str, where: str = "record") -> Record:
        """Read one line; raises RecordError naming what is wrong."""
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{where}: not JSON ({error})") from None
        if not isinstance(data, dict):
            raise RecordError(f"{where}: a record is an object, not {type(data).__name__}")
        if data.get("schema") != RECORD_SCHEMA:
            raise RecordError(
                f"{where}: record schema {data.get('schema')!r}, this kvassay reads {RECORD_SCHEMA}"
            )
        names = {item.name for item in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - names):
            raise RecordError(f"{where}: unknown field {unknown[0]!r}")
        for name, value in data.items():
            if name in _TEXTS and not isinstance(value, str):
                raise RecordError(f"{where}: {name} is {value!r}, not text")
        if not isinstance(data.get("detail", {}), dict):
            raise RecordError(f"{where}: detail is {data['detail']!r}, not an object")
        try:
            data["value"] = float(data["value"])
            data["comparisons"] = int(data["comparisons"])
            return cls(**data)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise RecordError(f"{where}: {error}") from None


_TEXTS: Final = frozenset(
    ("suite", "check", "stage", "backend", "variant", "unit", "preset", "subject", "reproduce")
)


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
    """Appends records to a JSON-lines file, flushed one by one, so that an interrupted run keeps
    them. append: behind what the file holds already, instead of anew."""

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = Path(path)
        self._stream = self.path.open("a" if append else "w", encoding="utf-8")

    def write(self, records: Iterable[Record]) -> None:
        """Append records and flush."""
        for record in records:
            self._stream.write(record.to_json() + "\n")
        self._stream.flush()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.close()


def read_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Records of a JSON-lines file; raises RecordError with the line number."""
    with Path(path).open("rb") as stream:
        for number, line in enumerate(stream, 1):
            where = f"{path}:{number}"
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise RecordError(f"{where}: not text in UTF-8 ({error})") from None
            if text.strip():
                yield Record.from_json(text, where)
