"""Every backend with every preset in one matrix, and in words only where backends differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..judging.gate import Verdict


@dataclass(frozen=True)
class Group:
    """Backends that a preset's verdict is the same for, with the rules behind it."""

    decision: str
    rejecting: tuple[str, ...]
    unmeasured: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A preset: its role, and what is said of it; one group where all backends agree."""

    preset: str
    role: str
    judged: bool
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Matrix:
    """`rows` are (backend/variant, its verdict for each column, or None where there is none)."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Verdict | None, ...]], ...]

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Matrix:
        """The matrix of these verdicts; judged presets come first."""
        found = {(_target(one), one.preset): one for one in verdicts}
        presets = {one.preset: one for one in sorted(verdicts, key=lambda v: not v.judged)}
        targets = list(dict.fromkeys(_target(one) for one in verdicts))
        return cls(
            tuple(
                Column(name, one.role, one.judged, _groups(verdicts, name))
                for name, one in presets.items()
            ),
            tuple((t, tuple(found.get((t, name)) for name in presets)) for t in targets),
        )


def _target(verdict: Verdict) -> str:
    return f"{verdict.target.backend}/{verdict.target.variant}"


def _groups(verdicts: Sequence[Verdict], preset: str) -> tuple[Group, ...]:
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for one in verdicts:
        if one.preset == preset:
            said = (one.decision, one.named("reject"), one.named("not measured"))
            found.setdefault(said, []).append(_target(one))
    return tuple(Group(*said, tuple(targets)) for said, targets in found.items())
