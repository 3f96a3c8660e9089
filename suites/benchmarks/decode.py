"""Steps of one layer: times, their ratios to fp16, and bytes."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from kvassay.protocol import Cache

from .common import PRESETS, TARGETS, TOKENS, filled, inputs, load, ratio


class Step:
    """Attention of one query and append of a page's tokens, on this machine's clock."""

    params: ClassVar = [TARGETS, PRESETS, TOKENS]
    param_names: ClassVar = ["target", "preset", "tokens"]

    def setup(self, target: str, preset: str, tokens: int) -> None:
        """Filled caches; untimed."""
        loaded = load(target)
        self.k, self.v, self.q = inputs(tokens)
        self.cache: Cache = filled(loaded, preset, self.k, self.v)
        self.growing: Cache = filled(loaded, preset, self.k[:64], self.v[:64])

    def teardown(self, target: str, preset: str, tokens: int) -> None:
        """Memory goes back; asv asks for it after a setup that said n/a as well."""
        for name in {"cache", "growing"} & vars(self).keys():
            getattr(self, name).close()

    def time_attend(self, target: str, preset: str, tokens: int) -> None:
        """One query over all tokens."""
        self.cache.attend(0, self.q)

    def time_append_page(self, target: str, preset: str, tokens: int) -> None:
        """64 tokens one by one, of which one seals a page."""
        for token in range(64):
            self.growing.append(0, self.k[token : token + 1], self.v[token : token + 1])


class Ratio:
    """Attention over that of fp16 in the same rounds: comparable between machines of a kind."""

    params: ClassVar = [TARGETS, PRESETS[1:], TOKENS]
    param_names: ClassVar = ["target", "preset", "tokens"]

    def setup(self, target: str, preset: str, tokens: int) -> None:
        """What cannot be loaded is n/a, not a failure: asv asks for that here."""
        self.loaded = load(target)

    def track_attend(self, target: str, preset: str, tokens: int) -> float:
        """Less than 1 is faster than fp16."""
        k, v, q = inputs(tokens)
        with filled(self.loaded, "fp16", k, v) as plain, filled(self.loaded, preset, k, v) as cache:
            return ratio(partial(cache.attend, 0, q), partial(plain.attend, 0, q))

    track_attend.unit = "of fp16"  # type: ignore[attr-defined]


class Bytes:
    """Bytes of sealed pages, which no machine changes."""

    params: ClassVar = [TARGETS, PRESETS, TOKENS]
    param_names: ClassVar = ["target", "preset", "tokens"]

    def setup(self, target: str, preset: str, tokens: int) -> None:
        """What cannot be loaded is n/a."""
        self.loaded = load(target)

    def track_payload(self, target: str, preset: str, tokens: int) -> int:
        """Codes, scales, means and headers."""
        k, v, _ = inputs(tokens)
        with filled(self.loaded, preset, k, v) as cache:
            parts = cache.nbytes
        return sum(parts[name] for name in ("codes", "scales", "means", "headers"))

    track_payload.unit = "bytes"  # type: ignore[attr-defined]
