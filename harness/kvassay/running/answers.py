"""Answers kept between runs: one that was stopped goes on, and measures only what is missing.

A file of JSON lines, one a task that ended well, found again by a digest of everything its answer
depends on. Another argument, build, model file or version of the code is another digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..backend.sources import code_digest, sources_of
from ..errors import KvassayError, RecordError
from ..json_text import read_json
from ..records import Record
from ..registry import load, provider
from ..suite import Target, Task


@dataclass(frozen=True)
class Kept:
    """What a task measured, and the seconds it took then."""

    records: tuple[Record, ...]
    seconds: float


class Answers:
    """The answers in a file, read once and added to line by line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the file, or begins one. A last line without an end, all that a process killed
        while it wrote can leave, is cut off; RecordError names any other that cannot be read."""
        self.path = Path(path)
        self._kept: dict[str, Kept] = {}
        whole = 0
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):
                self._read(line, f"{self.path}:{number}")
                whole += len(line)
        self._stream = self.path.open("ab")
        self._stream.truncate(whole)

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.close()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, task: Task) -> Kept | None:
        """The answer to this very task, if there is one."""
        return self._kept.get(task_digest(task) or "")

    def keep(self, task: Task, records: Sequence[Record], seconds: float) -> None:
        """Add the answer to a task; one without a digest is not kept."""
        digest = task_digest(task)
        if digest is None:
            return
        inside = ",".join(record.to_json() for record in records)
        head = json.dumps({"task": digest, "label": task.label, "seconds": seconds})
        self._stream.write(f'{head[:-1]}, "records": [{inside}]}}\n'.encode())
        self._stream.flush()
        self._kept[digest] = Kept(tuple(records), seconds)

    def _read(self, line: bytes, where: str) -> None:
        try:
            data: dict[str, Any] = read_json(line)
            records = [Record.from_data(one, where) for one in data["records"]]
            self._kept[str(data["task"])] = Kept(tuple(records), float(data["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{where}: not an answer ({error}); give another file") from None


def task_digest(task: Task) -> str | None:
    """Hex sha256 of all that the answer to a task depends on.

    None for a backend that is somebody's own or does not load: nobody knows what its code reads.
    """
    backend = _backend_digest(task.target) if task.target else ""
    if backend is None:
        return None
    parts = (
        task.function,
        dict(task.arguments),
        backend,
        _model_digest(str(task.arguments.get("model", ""))),
        code_digest("kvassay"),
        code_digest(task.function.partition(".")[0].partition(":")[0]),
        (__version__, np.__version__, platform.python_version(), platform.machine()),
    )
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


@cache
def _backend_digest(target: Target) -> str | None:
    try:
        if provider(target.backend).foreign:
            return None
        backend = load(target.backend, target.variant)
    except KvassayError:
        return None
    return backend.build_id or sources_of(type(backend)) or None


@cache
def _model_digest(name: str) -> str:
    """Of the model's file; empty where there is none, which the task itself will say."""
    from ..models import locate

    try:
        path = locate(name)
    except KvassayError:
        return ""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
