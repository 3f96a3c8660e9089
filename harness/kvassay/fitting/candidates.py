"""What a layer's keys or values may be stored as, and a choice of it for all layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..streams import RATES

#: Tokens kept as fp16 and tokens a page: what fitted caches have, and what arms have by default.
WINDOW: Final = 32
SINKS: Final = 4
PAGE: Final = 64


@dataclass(frozen=True)
class Stored:
    """A codec of one stream as arms and specs name it. centre: of keys in turbo codes."""

    family: str
    bits: float
    centre: str = "none"

    @property
    def name(self) -> str:
        """As a spec spells it."""
        return f"{self.family}:{self.bits:g}"

    @property
    def arm(self) -> str:
        """As an arm spells it."""
        return f"{self.name},centre={self.centre}" if self.family == "turbo" else self.name


KEYS: Final = (
    *(Stored("turbo", bits, centre) for centre in ("page", "none") for bits in RATES["turbo"]),
    *(Stored("kivi", bits) for bits in RATES["kivi"]),
)
VALUES: Final = (
    *(Stored("turbo", bits) for bits in RATES["turbo"]),
    *(Stored("kivi", bits) for bits in RATES["kivi"]),
)

Pair = tuple[Stored, Stored]


@dataclass(frozen=True)
class Choice:
    """What every layer stores: keys and values by layer, as many of each as layers.

    page_bits: bits a value in sealed pages, the mean over all; predicted: next-token KL in nats
    that the single streams add up to.
    """

    keys: tuple[Stored, ...]
    values: tuple[Stored, ...]
    page_bits: float
    predicted: float

    @property
    def _layers(self) -> dict[Pair, list[int]]:
        found: dict[Pair, list[int]] = {}
        for layer, pair in enumerate(zip(self.keys, self.values, strict=True)):
            found.setdefault(pair, []).append(layer)
        return found

    @property
    def _base(self) -> Pair:
        """The most frequent pair: the fields of a spec that layers override."""
        pairs = Counter({pair: len(layers) for pair, layers in self._layers.items()})
        return pairs.most_common(1)[0][0]

    @property
    def arm(self) -> str:
        """The text of the arm."""
        base = self._base
        return " ".join(
            (
                _text(base),
                *(
                    f"{','.join(map(str, layers))}={_text(pair)}"
                    for pair, layers in self._layers.items()
                    if pair != base
                ),
            )
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a spec, all but those that the model decides."""
        base = _fields(self._base)
        overrides = {}
        for layer, pair in enumerate(zip(self.keys, self.values, strict=True)):
            changed = {name: text for name, text in _fields(pair).items() if text != base[name]}
            if changed:
                overrides[layer] = changed
        policy = {"window": WINDOW, "sinks": SINKS, "page_tokens": PAGE}
        return {**base, **policy, "layer_overrides": overrides}


def _text(pair: Pair) -> str:
    return "/".join(one.arm for one in pair)


def _fields(pair: Pair) -> Mapping[str, str]:
    keys, values = pair
    return {"keys": keys.name, "values": values.name, "key_centre": keys.centre}
