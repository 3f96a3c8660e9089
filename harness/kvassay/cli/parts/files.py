"""Someone's own files on the command line: `--library mine.so`, `--wasm mine.wasm`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import KvassayError, UnavailableError
from ...records import Record
from ...registry import provider, variants_of
from ...suite import Target

#: The schemes under which the registry finds what loads a file, and how each is first tried.
TRIALS: Final[Mapping[str, str]] = {
    "library": "a first trial in a process of its own",
    "wasm": "a first trial in the sandbox",
}


@dataclass(frozen=True)
class Rejected:
    """A variant of a file that failed before anything could be measured, and why."""

    target: Target
    reason: str

    @property
    def record(self) -> Record:
        """The error as the runner would record that of a task: it rejects the file.

        The trial is a measurement, the only one there is, and so belongs to a suite.
        """
        scheme = self.target.backend.partition(":")[0]
        return Record(
            suite=scheme,
            check="run.errors",
            stage="math",  # the first: it got no further
            backend=self.target.backend,
            variant=self.target.variant,
            value=1.0,
            unit="tasks",
            comparisons=1,
            subject=TRIALS[scheme],
            detail={"error": self.reason},
        )


def try_files(files: Mapping[str, Iterable[Path]]) -> tuple[list[str], list[Rejected]]:
    """Names of the files (by scheme) whose variants work, and the variants that do not.

    A variant for another CPU is neither. Raises KvassayError for a file that is not there, where
    no engine is installed, and where no variant is for this CPU.
    """
    names, rejected = [], []
    for scheme, path in ((scheme, path) for scheme, paths in files.items() for path in paths):
        if not path.is_file():
            raise KvassayError(f"--{scheme}: no file {path}")
        name = f"{scheme}:{path.resolve()}"
        states = variants_of(provider(name))
        for variant, state in states.items():
            if state.status == "missing-package":
                raise UnavailableError(f"--{scheme}: {state.reason}")
            if not state.runs and state.status != "unsupported-cpu":
                rejected.append(Rejected(Target(name, variant), state.reason))
        if any(state.runs for state in states.values()):
            names.append(name)
        elif all(state.status == "unsupported-cpu" for state in states.values()):
            reasons = "; ".join(f"{key}: {state.reason}" for key, state in states.items())
            raise UnavailableError(f"--{scheme}: {path} has no variant for this CPU ({reasons})")
    return names, rejected
