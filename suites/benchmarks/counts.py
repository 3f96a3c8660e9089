"""Counts that no clock disturbs: instructions, and what can run at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from .common import PRESETS, STATUSES, TARGETS, filled, from_checkout, inputs, load, status


class Availability:
    """Why a target has figures, or none."""

    params: ClassVar = [TARGETS]
    param_names: ClassVar = ["target"]

    def track_status(self, target: str) -> int:
        """What the registry says of it, as a number."""
        return status(target)

    track_status.unit = ", ".join(  # type: ignore[attr-defined]
        f"{number} {name}" for number, name in enumerate(STATUSES)
    )


class Fuel:
    """Instructions of the WebAssembly modules, counted by the engine: the same on every machine."""

    params: ClassVar = [["wasm/scalar", "wasm/simd128", "wasm/relaxed"], PRESETS]
    param_names: ClassVar = ["target", "preset"]

    def setup(self, target: str, preset: str) -> None:
        """What cannot be loaded, or counts nothing, is n/a."""
        loaded = cast(Any, load(target))
        try:
            self.one = loaded.in_one_memory(metered=True)
        except (AttributeError, TypeError):  # of an older commit
            raise NotImplementedError(f"{target} of this commit counts no instructions") from None

    def track_attend(self, target: str, preset: str) -> int:
        """One query at 1028 tokens."""
        return self._count(preset, lambda cache, k, v, q: cache.attend(0, q))

    def track_append(self, target: str, preset: str) -> int:
        """64 tokens one by one, of which one seals a page."""

        def append(cache: Any, k: Any, v: Any, q: Any) -> None:
            for token in range(64):
                cache.append(0, k[token : token + 1], v[token : token + 1])

        return self._count(preset, append)

    track_attend.unit = track_append.unit = "instructions"  # type: ignore[attr-defined]

    def _count(self, preset: str, work: Callable[..., object]) -> int:
        k, v, q = inputs(1028)
        with filled(self.one, preset, k, v) as cache:
            work(cache, k, v, q)  # what is made at first use is there from then on
            before = int(self.one.spent)
            work(cache, k, v, q)
            return int(self.one.spent) - before


class Callgrind:
    """Instructions of native variants, counted by valgrind: the same on every x86-64 with AVX2."""

    params: ClassVar = [["native/scalar", "native/avx2"], PRESETS]
    param_names: ClassVar = ["target", "preset"]
    timeout = 900

    def setup_cache(self) -> Any:
        """Everything in one process, whose start takes longer than what is counted."""
        callgrind, counted = from_checkout("callgrind"), from_checkout("counted")
        arguments = {"targets": self.params[0], "presets": PRESETS, "tokens": 1028}
        try:
            counts, outputs = callgrind.count(counted.__file__, arguments)
        except callgrind.NotCountedError as error:
            return str(error)
        errors = {target: found["error"] for target, found in outputs.items() if "error" in found}
        return {**counted.read(counts, outputs), **errors}

    def setup(self, cache: Any, target: str, preset: str) -> None:
        """What was not counted is n/a, with the reason."""
        reason = cache if isinstance(cache, str) else cache[target]
        if isinstance(reason, str):
            raise NotImplementedError(reason)

    def track_attend(self, cache: Any, target: str, preset: str) -> int:
        """One query at 1028 tokens, binding included."""
        return int(cache[target][preset]["attend"])

    def track_append(self, cache: Any, target: str, preset: str) -> int:
        """64 tokens one by one, of which one seals a page, binding included."""
        return int(cache[target][preset]["append"])

    track_attend.unit = track_append.unit = "instructions"  # type: ignore[attr-defined]
