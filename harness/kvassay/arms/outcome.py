"""What was measured of one arm on one text, and its form as a record."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from .._version import __version__
from ..errors import RecordError
from ..models import Model, Tokens
from ..records import Record, read_records
from .arm import Arm

CHECK: Final = "quality.arm_kl"
#: Arms are not backends; their records say so where those of backends have a name.
BACKEND: Final = "codec arms"

#: Positions that are resampled together: neighbours depend on each other.
BLOCK: Final = 32


@dataclass(frozen=True)
class Outcome:
    """One arm on one text: sums over `positions`.

    Positions are those whose query meets a sealed page under the policy of 4 sinks, 32 newest
    tokens and pages of 64, for every arm alike. kl: KL(full || arm) of next-token distributions,
    kl_all that over all `tokens`; nll, full_nll: of the true next tokens, under the arm and in full
    precision; all in nats. top1: positions whose likeliest token is the same. digest: of model,
    tokens, arm and version. held_out: nothing was chosen by this text. blocks: mean KL of each
    `BLOCK` positions, the last of them short.
    """

    arm: str
    model: str
    text: str
    held_out: bool
    digest: str
    tokens: int
    positions: int
    kl: float
    kl_all: float
    nll: float
    full_nll: float
    top1: int
    page_bits: float
    all_in_bits: float
    blocks: tuple[float, ...] = ()

    def to_record(self) -> Record:
        """The mean KL over positions as a record; the rest is its detail."""
        return Record(
            suite="quality",
            check=CHECK,
            stage="real model scalar",
            backend=BACKEND,
            variant="",
            value=self.kl / self.positions,
            unit="nats",
            comparisons=self.positions,
            subject=f"{self.arm}, {self.text}",
            detail=asdict(self),
            reproduce=f"kvassay arms --arm '{self.arm}' --text {self.text}",
        )


def digest_of(model: Model, ids: Tokens, arm: Arm) -> str:
    """What an outcome depends on, 16 hex digits."""
    told = json.dumps([__version__, model.config.model_hash, ids.tolist(), arm.text])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def outcomes(records: Iterable[Record]) -> list[Outcome]:
    """The outcomes among records; raises RecordError for one that does not hold what it should."""
    found = []
    for record in records:
        if record.check == CHECK:
            try:
                blocks = tuple(record.detail.get("blocks", ()))
                found.append(Outcome(**{**record.detail, "blocks": blocks}))
            except TypeError as error:
                raise RecordError(f"{record.subject}: {error}; measure this arm again") from None
    return found


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """Outcomes of an earlier run by digest, none where there is no file.

    A last line without its end was cut off by an interruption, and is left out.
    """
    if not path.exists():
        return {}
    whole = path.read_bytes()
    if not whole.endswith(b"\n"):
        os.truncate(path, whole.rfind(b"\n") + 1)
    return {outcome.digest: outcome for outcome in outcomes(read_records(path))}
