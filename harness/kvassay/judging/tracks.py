"""Tracks: figures that a stored baseline holds a run to, beyond the thresholds of the rules.

They stand in rules.toml beside the rules. A track names a check and the figure of its records that
is compared, the least being best: an exact counter, which may grow by its tolerance, or the ratios
of timings that took turns, which are compared by ranks (`kvassay.noise`).
"""

from __future__ import annotations

import datetime
import math
import numbers
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, get_args

from ..errors import RecordError
from ..records import Record
from ..suggest import did_you_mean

Kind = Literal["exact", "ratio"]
#: The figure that is the record's value; any other is a key of its detail.
VALUE: Final = "value"
_SHARES: Final = ("false_alarms", "slowdown", "power")


@dataclass(frozen=True)
class Track:
    """`tolerance` is the relative growth that is no regression yet."""

    check: str
    figure: str
    kind: Kind
    tolerance: float
    reason: str
    date: datetime.date
    subject: str = ""

    def follows(self, record: Record) -> bool:
        """Whether a record has this track's figure."""
        return record.check == self.check and self.subject in ("", record.subject)

    def read(self, record: Record) -> Any:
        """The figure: a number, or a list of ratios; None where nothing was measured. Raises
        RecordError for what is neither."""
        if record.comparisons <= 0:
            return None
        found = record.value if self.figure == VALUE else record.detail.get(self.figure)
        listed = found if self.kind == "ratio" and isinstance(found, list) else [found]
        if not all(one is None or _is_number(one, self.kind) for one in listed):
            raise RecordError(f"record {record.check} {record.subject}: {self.figure} is {found!r}")
        return found


def _is_number(value: Any, kind: Kind) -> bool:
    """Whether a figure is a number; one alone may be no finite one, as records write it."""
    if kind == "exact" and value in ("nan", "inf", "-inf"):
        return True
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and (kind == "exact" or math.isfinite(value))


@dataclass(frozen=True)
class Tracks:
    """All tracks, and how a run's ratios are compared: the rate of false alarms over all of them,
    and the slowdown that each comparison must be able to find, with what power."""

    tracks: tuple[Track, ...]
    false_alarms: float
    slowdown: float
    power: float


@cache
def tracks() -> Tracks:
    """The tracks that ship with kvassay."""
    return parse_tracks((files("kvassay.judging") / "rules.toml").read_text(encoding="utf-8"))


def parse_tracks(text: str) -> Tracks:
    """Read tracks from TOML; raises RecordError naming the track and the field that is wrong."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecordError(f"rules.toml: not TOML ({error})") from None
    shares = {name: data.get("baseline", {}).get(name) for name in _SHARES}
    for name, share in shares.items():
        if not isinstance(share, float) or not 0 < share < 1:
            raise RecordError(f"rules.toml: baseline: {name} must be a number between 0 and 1")
    return Tracks(tuple(_parse(entry) for entry in data.get("track", ())), **shares)


def _parse(entry: Mapping[str, Any]) -> Track:
    where = f"rules.toml: track {entry.get('check')!r}"
    known = ("check", "figure", "kind", "tolerance", "reason", "date", "subject")
    if unknown := sorted(set(entry) - set(known)):
        raise RecordError(f"{where}: unknown field {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    for name in ("check", "figure", "reason"):
        if not isinstance(entry.get(name), str) or not entry[name]:
            raise RecordError(f"{where}: {name} must be a text")
    if entry.get("kind") not in get_args(Kind):
        raise RecordError(f"{where}: kind must be one of {', '.join(get_args(Kind))}")
    tolerance = entry.get("tolerance")
    if not isinstance(tolerance, (int, float)) or tolerance < 0:
        raise RecordError(f"{where}: tolerance must be a number of at least 0")
    if not isinstance(entry.get("date"), datetime.date):
        raise RecordError(f"{where}: date must be a date")
    return Track(**entry)
