"""The choice of least loss that keeps to a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..arms.layers import allocate_bits
from ..errors import InputError
from ..page.costs import Costs
from ..presets import combined
from .candidates import KEYS, VALUES, Choice, Stored
from .losses import Losses

#: Steps by which bits are tried for a target in bytes or in loss.
_STEP: Final = 1 / 16
_LEAST, _MOST = 1.0, 6.0


@dataclass(frozen=True)
class Target:
    """Exactly one of: page bits at most, bytes at most after so many tokens, predicted next-token
    KL at most (nats)."""

    bits: float | None = None
    bytes: int | None = None
    tokens: int = 0
    kl: float | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.bits, self.bytes, self.kl) if one is not None]
        if len(given) != 1 or not given[0] > 0:
            raise InputError("fit: give one target above 0: --bits, --bytes with --tokens, or --kl")
        if (self.bytes is None) != (self.tokens == 0):
            raise InputError("fit: --bytes and --tokens go together: bytes after so many tokens")

    def __str__(self) -> str:
        if self.bits is not None:
            return f"{self.bits:g} bits a value in pages"
        if self.bytes is not None:
            return f"{self.bytes:,} bytes after {self.tokens:,} tokens"
        return f"a next-token KL of {self.kl:g} nats"


def choose(losses: Losses, target: Target, shape: dict[str, Any]) -> Choice:
    """The choice of least predicted loss within bits or bytes, of fewest bits within a loss.

    shape: of the model, as fields of a spec; see `kvassay.models.ModelConfig.shape`. Raises
    InputError for what no choice reaches.
    """
    if target.bits is not None:
        return at_bits(losses, target.bits)
    tried = [_LEAST + _STEP * n for n in range(int((_MOST - _LEAST) / _STEP) + 1)]
    least = min(float(bits.min()) for bits in (losses.key_bits, losses.value_bits))
    made = [at_bits(losses, bits) for bits in tried if bits >= _floor(losses)]
    if target.bytes is not None:
        fitting = [one for one in made if _bytes(one, shape, target.tokens) <= target.bytes]
        if not fitting:
            raise InputError(f"fit: nothing keeps to {target}; pages take {least:.3g} bits or more")
        return fitting[-1]
    reached = [one for one in made if one.predicted <= float(target.kl or 0)]
    if not reached:
        raise InputError(f"fit: nothing keeps to {target}; {made[-1].predicted:.2g} is the least")
    return reached[0]


def at_bits(losses: Losses, bits: float) -> Choice:
    """The choice of least predicted loss with at most so many bits a value in pages."""
    layers = len(losses.keys)
    options: list[dict[float, tuple[float, Stored]]] = []
    for layer in range(layers):
        for codecs, found, rates in (
            (KEYS, losses.keys, losses.key_bits),
            (VALUES, losses.values, losses.value_bits),
        ):
            best: dict[float, tuple[float, Stored]] = {}
            for codec, loss, rate in zip(codecs, found[layer], rates[layer], strict=True):
                if float(rate) not in best or loss < best[float(rate)][0]:
                    best[float(rate)] = float(loss), codec
            options.append(best)
    chosen = allocate_bits([{rate: o[rate][0] for rate in o} for o in options], bits)
    picked = [one[rate] for one, rate in zip(options, chosen, strict=True)]
    return Choice(
        keys=tuple(codec for _, codec in picked[::2]),
        values=tuple(codec for _, codec in picked[1::2]),
        page_bits=sum(chosen) / len(chosen),
        predicted=sum(loss for loss, _ in picked),
    )


def _floor(losses: Losses) -> float:
    """Page bits of the fewest that every stream can do with."""
    least = losses.key_bits.min(axis=1).mean() + losses.value_bits.min(axis=1).mean()
    return float(least) / 2


def _bytes(choice: Choice, shape: dict[str, Any], tokens: int) -> int:
    return int(Costs.of(combined(choice.fields, shape)).held(tokens))
