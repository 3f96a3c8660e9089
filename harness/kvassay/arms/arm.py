"""An arm by its text: codecs of keys and values, tokens kept as fp16, layers that differ.

    turbo:3.5/turbo:3,centre=frozen window=32 sinks=4 page=64 0,-1=fp16
    kivi:2                           one codec for both
    preset:turbo window=32           a cache of a backend; words set fields of its spec

A codec is its name, `:bits` (its own default where left out) and `,parameter=value`. Layers are
numbers, negative ones from the end, with the codecs that stand in for the others there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import SpecError

_PRESET: Final = "preset:"
_LAYERS: Final = re.compile(r"(-?\d+(?:,-?\d+)*)=(.+)")


@dataclass(frozen=True)
class Stream:
    """A codec of `kvassay.codec`: bits None are its own."""

    name: str
    bits: float | None = None
    params: tuple[tuple[str, Any], ...] = ()


Pair = tuple[Stream, Stream]


@dataclass(frozen=True)
class Arm:
    """What an arm stores. window, sinks, page: tokens, as in a spec.

    preset: name of a preset whose cache a backend runs, with `fields` of the spec; codecs then
    have no say. layers: codecs of layers that differ.
    """

    text: str
    codecs: Pair | None = None
    window: int = 32
    sinks: int = 4
    page: int = 64
    layers: Mapping[int, Pair] = field(default_factory=dict)
    preset: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def pair(self, layer: int, count: int) -> Pair:
        """Codecs of keys and values in a layer of `count`; raises SpecError for other layers."""
        for number in self.layers:
            if not -count <= number < count:
                raise SpecError(f"arm {self.text!r}: no layer {number} among {count}")
        resolved = {number % count: pair for number, pair in self.layers.items()}
        found = resolved.get(layer, self.codecs)
        if found is None:
            raise SpecError(f"arm {self.text!r} is a preset; it has no codecs of its own")
        return found


def parse_arm(text: str) -> Arm:
    """The arm of a text; raises SpecError naming the word that cannot be read.

    Names, bits and parameters of codecs are checked where they are made, by `kvassay.codec`.
    """
    words = text.split()
    if not words:
        raise SpecError("an arm is empty; give codecs as in 'turbo:3.5/turbo:3 window=32'")
    first, options = words[0], words[1:]
    if first.startswith(_PRESET):
        fields = dict(_option(text, word) for word in options)
        return Arm(text, preset=first.removeprefix(_PRESET), fields=fields)
    policy = {"window": 32, "sinks": 4, "page": 64}
    layers: dict[int, Pair] = {}
    for word in options:
        if match := _LAYERS.fullmatch(word):
            layers |= dict.fromkeys(map(int, match[1].split(",")), _pair(text, match[2]))
            continue
        name, value = _option(text, word)
        if name not in policy or not isinstance(value, int) or value < (name == "page"):
            raise SpecError(f"arm {text!r}: cannot read {word!r}; {', '.join(policy)} are tokens")
        policy[name] = value
    window, sinks, page = policy.values()
    return Arm(text, _pair(text, first), window, sinks, page, layers)


def _pair(text: str, word: str) -> Pair:
    keys, _, values = word.partition("/")
    return _stream(text, keys), _stream(text, values or keys)


def _stream(text: str, word: str) -> Stream:
    head, *params = word.split(",")
    name, colon, bits = head.partition(":")
    if not name or (colon and not re.fullmatch(r"\d+(\.\d+)?", bits)):
        raise SpecError(f"arm {text!r}: {head!r} is not a codec as in 'turbo:3.5'")
    return Stream(
        name, float(bits) if colon else None, tuple(_option(text, param) for param in params)
    )


def _option(text: str, word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not (name and equals and value):
        raise SpecError(f"arm {text!r}: {word!r} is not a setting as in 'window=32'")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value, value)
