"""What a peer is."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import KvassayError

from .cases import Case
from .inputs import Inputs

#: `ours` is what is compared, a `bound` what no kernel undercuts, a `peer` the rest.
Role = Literal["ours", "peer", "bound"]


class NotMeasured(KvassayError):
    """A peer has no figure here; the message is the reason."""


@dataclass(frozen=True)
class Best:
    """The answer of a top-k search: ids and their scores, best first."""

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Sum:
    """A checksum and what it must be, of work that computes nothing else."""

    found: int
    expected: int


#: What comes out: floats shaped like the expected result, or one of the above.
Result = NDArray[np.float32] | Best | Sum


class Prepared(ABC):
    """A case set up in a peer: what is timed is `run`, nothing else."""

    units: int = 1
    """How many units of work, tokens for instance, one run does."""
    bytes: int = 0
    """Bytes of stored keys, values or codes that a run has to read or write, 0 if unknown."""

    def before(self) -> None:  # noqa: B027 (most have nothing to do)
        """Untimed work before each run."""

    @abstractmethod
    def run(self) -> None:
        """The work, once."""

    @abstractmethod
    def result(self) -> Result:
        """What the last run computed, as float64 can judge it."""

    def notes(self) -> Mapping[str, float]:
        """Further figures of the runs so far."""
        return {}


class Peer(ABC):
    """One implementation, with the types that it offers."""

    name: str
    role: Role = "peer"

    @abstractmethod
    def types(self, case: Case) -> Mapping[str, float]:
        """The types this peer has for a case, each with its tolerance: the largest error (`verify`)
        at which its result still counts as right. Must not import the peer."""

    @abstractmethod
    def version(self) -> str:
        """Name and version of what is measured. Raises NotMeasured if it is not installed."""

    @abstractmethod
    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        """Set up one type of a case with as many threads. Raises NotMeasured if it cannot."""


def need(package: str, module: str | None = None) -> Any:
    """Import an optional package; NotMeasured if it is not there or broken."""
    try:
        return importlib.import_module(module or package)
    except ImportError as error:
        raise NotMeasured(f"{package} is not installed ({error})") from None


def installed(package: str) -> str:
    """Name and version of an installed package."""
    return f"{package} {version(package)}"
