"""Figures looked up in the records of one or several runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvassay.records import Record
from kvassay.statistics.noise import Ratio, ratio

from .session import NOT_MEASURED, TIME


@dataclass(frozen=True)
class Figure:
    """One entrant of a case with one number of threads."""

    case: str
    threads: int
    peer: str
    type: str
    ns: float
    detail: dict[str, Any]

    @property
    def name(self) -> str:
        """Peer and type, as tables print them."""
        return f"{self.peer} {self.type}"

    @property
    def bytes_per_second(self) -> float | None:
        """Stored bytes over time, where the bytes are known."""
        size = self.detail["bytes"]
        return size / self.ns * 1e9 if size else None

    def over(self, other: Figure) -> Ratio | None:
        """How many times longer this took, round by round; None if they ran in different runs."""
        if (self.case, self.detail["run"]) != (other.case, other.detail["run"]):
            return None
        return ratio(self.detail["rounds_ns"], other.detail["rounds_ns"])


class Results:
    """What was measured and what was not. Of a case that was run twice the later run counts."""

    def __init__(self, records: Iterable[Record]) -> None:
        kept = [record for record in records if record.check in (TIME, NOT_MEASURED)]
        last = {record.detail["case"]: record.detail["run"] for record in kept}
        #: (case, threads, peer, type) and the reason.
        self.missing: list[tuple[str, int, str, str, str]] = []
        self._figures: list[Figure] = []
        for record in kept:
            detail = dict(record.detail)
            if detail["run"] != last[detail["case"]]:
                continue
            key = (detail["case"], detail["threads"], record.backend, record.variant)
            if record.check == TIME:
                self._figures.append(Figure(*key, record.value, detail))
            else:
                self.missing.append((*key, detail["reason"]))

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._figures)

    def of(self, case: str, threads: int) -> list[Figure]:
        """The figures of a case, fastest first."""
        found = [f for f in self if (f.case, f.threads) == (case, threads)]
        return sorted(found, key=lambda figure: figure.ns)

    def base(self, case: str, threads: int) -> Figure | None:
        """What the others are compared with: our product in its best variant."""
        return next((f for f in self.of(case, threads) if f.detail["base"]), None)

    def fastest(self, case: str, threads: int, peer: str = "", type_: str = "") -> Figure | None:
        """The fastest figure of a peer, or of one of its types; None if there is none."""
        return next(
            (f for f in self.of(case, threads) if peer == f.peer and type_ in ("", f.type)), None
        )
