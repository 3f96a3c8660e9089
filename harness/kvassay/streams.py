"""Names of the codecs that a spec may use for a stream, and their rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from .errors import SpecError
from .suggest import did_you_mean

_FAMILY_NUMBER: Final = {"fp16": 0, "turbo": 1, "turbo+qjl": 2, "kivi": 3}
#: Bits that each family may have.
RATES: Final = {
    "turbo": (2.0, 2.5, 3.0, 3.5, 4.0),
    "turbo+qjl": (2.0, 2.5, 3.0, 3.5, 4.0),
    "kivi": (2.0, 3.0, 4.0),
}
_NAME: Final = re.compile(r"(turbo|kivi):(\d(?:\.\d)?)(\+qjl)?")


@dataclass(frozen=True)
class Codec:
    """How one stream is stored. `bits` are those of the codes alone (16 for fp16)."""

    family: str
    bits: float

    @property
    def name(self) -> str:
        """The name as a spec spells it, for instance `turbo:3.5` or `turbo:3+qjl`."""
        if self.family == "fp16":
            return "fp16"
        base, _, suffix = self.family.partition("+")
        return f"{base}:{self.bits:g}" + (f"+{suffix}" if suffix else "")

    @property
    def mode(self) -> int:
        """The mode byte of a page header (docs/page-format.md)."""
        number = _FAMILY_NUMBER[self.family]
        return 16 * number + (0 if number == 0 else int(2 * self.bits))

    @property
    def rotated(self) -> bool:
        """Whether the stream goes through the transform."""
        return self.family.startswith("turbo")

    @property
    def qjl(self) -> bool:
        """Whether a sign projection of the residual is stored too."""
        return self.family == "turbo+qjl"

    def splits(self, head_dim: int) -> tuple[tuple[int, int, int], ...]:
        """Spans of channels with equal bits: (first channel, channels, bits)."""
        low = int(self.bits)
        if self.bits == low:
            return ((0, head_dim, low),)
        half = head_dim // 2
        return ((0, half, low), (half, half, low + 1))


FP16: Final = Codec("fp16", 16.0)


def codec_names(stream: str) -> tuple[str, ...]:
    """All codec names that `stream` ("keys" or "values") accepts."""
    names = ["fp16"]
    for family, rates in RATES.items():
        if family == "turbo+qjl" and stream != "keys":
            continue
        names += [Codec(family, bits).name for bits in rates]
    return tuple(names)


def parse_codec(name: Any, stream: str, where: str = "") -> Codec:
    """The Codec of a name; raises SpecError naming stream, name and near names."""
    if name == "fp16":
        return FP16
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match:
        family = match[1] + (match[3] or "")
        bits = float(match[2])
        if bits in RATES.get(family, ()) and (family != "turbo+qjl" or stream == "keys"):
            return Codec(family, bits)
    hint = did_you_mean(str(name), codec_names(stream))
    raise SpecError(f"{where}{stream}: no codec {name!r} for {stream}{hint}")
