"""Records of this suite: who was measured, and facts that hold for several backends."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kvassay import registry
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.suite import Target
from kvassay_suites.common.specs import record

SUITE: Final = "quality"
TINY: Final = "tiny transformer"
REAL: Final = "real model scalar"


@dataclass(frozen=True)
class Origin:
    """A backend variant with a preset at a stage: what all records of one measurement share.

    suite: that measured. tensors: the file of captured tensors that it measured on, if any.
    command: that measures again.
    """

    target: Target
    preset: str
    stage: str
    suite: str = SUITE
    tensors: str = ""
    command: str = "kvassay gate"

    def record(
        self,
        check: str,
        value: float,
        unit: str,
        comparisons: int,
        subject: str = "",
        **detail: Any,
    ) -> Record:
        """A record of `<suite>.<check>`."""
        return record(
            f"{self.suite}.{check}",
            self.stage,
            self.target.backend,
            self.target.variant,
            value,
            unit,
            comparisons,
            subject=subject,
            preset=self.preset,
            detail=detail,
            reproduce=self._reproduce(),
        )

    def _reproduce(self) -> str:
        options = {
            "backend": self.target.backend if self.target.variant else "",
            "variant": self.target.variant,
            "preset": self.preset,
            "tensors": shlex.quote(self.tensors) if self.tensors else "",
        }
        given = [f"--{name} {value}" for name, value in options.items() if value]
        return " ".join([self.command, *given])

    def copied(self, records: Iterable[Record]) -> list[Record]:
        """Records measured on another backend that this one was shown to equal bit for bit."""
        return [
            dataclasses.replace(
                one,
                backend=self.target.backend,
                variant=self.target.variant,
                detail={**one.detail, "shared_with": f"{one.backend} {one.variant}"},
                reproduce=self._reproduce(),
            )
            for one in records
        ]


def load(target: Target) -> Backend:
    """The backend of a target, that very variant."""
    return registry.load(target.backend, target.variant)
