"""Someone's own WebAssembly modules on the command line: `--wasm mine.wasm`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import KvassayError, UnavailableError
from ..records import Record
from ..registry import provider
from ..suite import Target

#: The scheme under which the registry finds what loads a module.
SCHEME: Final = "wasm"


@dataclass(frozen=True)
class Rejected:
    """A module that failed before anything could be measured, and why."""

    target: Target
    reason: str

    @property
    def record(self) -> Record:
        """The error as the runner would record that of a task: it rejects the module.

        The trial is a measurement, the only one there is, and so belongs to a suite.
        """
        return Record(
            suite=SCHEME,
            check="run.errors",
            stage="math",  # the first: it got no further
            backend=self.target.backend,
            variant=self.target.variant,
            value=1.0,
            unit="tasks",
            comparisons=1,
            subject="a first trial in the sandbox",
            detail={"error": self.reason},
        )


def try_modules(paths: Iterable[Path]) -> tuple[list[str], list[Rejected]]:
    """Names of the modules whose variants work, and the variants that do not.

    Raises KvassayError for a file that is not there and where no engine is installed.
    """
    names, rejected = [], []
    for path in paths:
        if not path.is_file():
            raise KvassayError(f"--wasm: no file {path}")
        name = f"{SCHEME}:{path.resolve()}"
        states = dict(provider(name).variants())
        for variant, state in states.items():
            if state.status == "missing-package":
                raise UnavailableError(f"--wasm: {state.reason}")
            if not state.runs:
                rejected.append(Rejected(Target(name, variant), state.reason))
        if any(state.runs for state in states.values()):
            names.append(name)
    return names, rejected
