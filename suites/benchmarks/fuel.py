"""Instructions of the WebAssembly modules: the same number on every machine, in every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from .common import PRESETS, filled, inputs, load


class Fuel:
    """Operations of one layer, counted by the engine."""

    params: ClassVar = [["wasm/scalar", "wasm/simd128", "wasm/relaxed"], PRESETS]
    param_names: ClassVar = ["target", "preset"]

    def track_attend(self, target: str, preset: str) -> int:
        """One query at 1028 tokens."""
        return self._count(target, preset, lambda cache, k, v, q: cache.attend(0, q))

    def track_append(self, target: str, preset: str) -> int:
        """64 tokens one by one, of which one seals a page."""

        def append(cache: Any, k: Any, v: Any, q: Any) -> None:
            for token in range(64):
                cache.append(0, k[token : token + 1], v[token : token + 1])

        return self._count(target, preset, append)

    track_attend.unit = track_append.unit = "instructions"  # type: ignore[attr-defined]

    def _count(self, target: str, preset: str, work: Callable[..., object]) -> int:
        loaded = cast(Any, load(target))
        if not hasattr(loaded, "in_one_memory"):
            raise NotImplementedError(f"{target} of this commit counts no instructions")
        one = loaded.in_one_memory(metered=True)
        k, v, q = inputs(1028)
        with filled(one, preset, k, v) as cache:
            work(cache, k, v, q)  # what is made at first use is there from then on
            before = int(one.spent)
            work(cache, k, v, q)
            return int(one.spent) - before
