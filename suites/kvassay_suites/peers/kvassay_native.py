"""Our native backend: preset `turbo` and its fp16 control, the best variant and the scalar one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kvassay.errors import KvassayError
from kvassay.presets import preset
from kvassay.protocol import Cache
from kvassay.registry import load, providers
from kvassay.spec import Spec

from .cases import Case
from .inputs import Inputs
from .protocol import NotMeasured, Peer, Prepared, Result

BACKEND: Final = "native"
#: The control that every other variant has to beat.
_SCALAR: Final = "scalar"
#: On these inputs 3.5-bit keys and 3-bit values leave an error of 0.28 to 0.38, and 4-bit keys one
#: of 0.1 in scores. What is wrong is farther off: twice the logits 3, half of the tokens 0.7.
_TOLERANCE: Final = {"turbo": 0.5, "fp16": 1e-2, "4 bits": 0.15}


def _spec(case: Case, type_: str) -> Spec:
    shape: dict[str, Any] = {
        "layers": 1,
        "kv_heads": case.kv_heads,
        "query_heads": case.query_heads,
        "head_dim": case.head_dim,
    }
    if case.kind in ("scan", "scores"):
        shape["softmax_scale"] = 1.0  # plain inner products, like everybody else's
    if type_ == "4 bits":
        return Spec(keys="turbo:4", values="turbo:2", **shape)
    return preset(type_, **shape)


class _Work(Prepared):
    def __init__(self, cache: Cache, inputs: Inputs) -> None:
        self.cache, self.inputs = cache, inputs
        self.out = np.empty(0, np.float32)

    def fill(self, tokens: int) -> None:
        """The first tokens, at most a page's worth of megabytes at a time."""
        for start in range(0, tokens, 1 << 14):
            part = slice(start, min(start + (1 << 14), tokens))
            keys = self.inputs.keys[part]
            values = self.inputs.values[part]
            if len(values) < len(keys):
                values = np.zeros_like(keys)
            self.cache.append(0, keys, values)
        self.bytes = sum(self.cache.nbytes[part] for part in ("codes", "scales", "means"))

    def result(self) -> Result:
        return self.out


class _Attend(_Work):
    def __init__(self, cache: Cache, inputs: Inputs) -> None:
        super().__init__(cache, inputs)
        self.fill(len(inputs.keys))

    def run(self) -> None:
        self.out = self.cache.attend(0, self.inputs.q)


class _Scores(_Work):
    def __init__(self, cache: Cache, inputs: Inputs) -> None:
        super().__init__(cache, inputs)
        self.fill(len(inputs.keys))
        codec = cache.spec.layer_specs[0].keys
        self.bytes = int(inputs.keys.size * codec.bits / 8)

    def run(self) -> None:
        self.out = self.cache.scores(0, self.inputs.q[0])


class _Seal(_Work):
    def before(self) -> None:
        self.cache.reset()

    def run(self) -> None:
        self.cache.append(0, self.inputs.keys, self.inputs.values)

    def result(self) -> Result:
        return self.cache.attend(0, self.inputs.q)


class _Append(_Work):
    """Token after token through the C function itself: the checks of the Python layer cost as much
    as the append, and no runtime that appends so often goes through them."""

    def __init__(self, cache: Cache, inputs: Inputs, tokens: int) -> None:
        super().__init__(cache, inputs)
        self._tokens, self.units = tokens, len(inputs.keys) - tokens
        self._times: list[list[int]] = []  # of each run, every append

    def before(self) -> None:
        self.cache.reset()
        self.fill(self._tokens)
        self.bytes = 0  # a token's share is no whole number

    def run(self) -> None:
        native: Any = self.cache
        call, handle, layer = native._lib.kv_cache_append, native._owned, 0
        error = native._library.new_error()
        keys = native._floats(self.inputs.keys)
        values = native._floats(self.inputs.values)
        row = self.inputs.keys[0].size
        at, clock, times, failed = self._tokens * row, time.perf_counter_ns, [], 0
        for _ in range(self.units):
            start = clock()
            failed |= call(handle, layer, keys + at, values + at, 1, error)
            times.append(clock() - start)
            at += row
        if failed:
            raise NotMeasured(native._library.text(error.message))
        self._times.append(times)

    def result(self) -> Result:
        return self.cache.attend(0, self.inputs.q)

    def notes(self) -> Mapping[str, float]:
        """Of the appends, each the median over runs: what the cache does at that length, not what
        the machine did meanwhile."""
        each = np.median(self._times, axis=0)
        return {
            "worst_ns": float(each.max()),
            "p99_ns": float(np.percentile(each, 99)),
            "median_ns": float(np.median(each)),
        }


class NativePeer(Peer):
    """Types are `preset variant`; the first one is what others are compared with."""

    name = "kvassay"
    role = "ours"

    def types(self, case: Case) -> Mapping[str, float]:
        best, slow = self._variants()
        if case.kind == "transform":
            return {}
        main = "4 bits" if case.kind == "scan" else "turbo"
        wanted = [f"{main} {best}"]
        if case.kind == "attend":
            wanted.append(f"fp16 {best}")
        wanted += [f"{main} {name}" for name in slow]
        return {name: _TOLERANCE[name.rpartition(" ")[0]] for name in wanted}

    @staticmethod
    def _variants() -> tuple[str, list[str]]:
        runs = [name for name, state in providers()[BACKEND].variants().items() if state.runs]
        if not runs:
            raise NotMeasured(f"{BACKEND}: no variant runs here; see `kvassay list`")
        return runs[0], [_SCALAR] if _SCALAR in runs[1:] else []

    def version(self) -> str:
        backend = load(BACKEND)
        return f"kvassay {BACKEND} {backend.build_id[:12]}"

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        name, _, variant = type_.rpartition(" ")
        try:
            cache = load(BACKEND, variant).prepare(_spec(case, name), threads=threads)
        except KvassayError as error:
            raise NotMeasured(str(error)) from None
        if case.kind == "attend":
            return _Attend(cache, inputs)
        if case.kind in ("scan", "scores"):
            return _Scores(cache, inputs)
        if case.kind == "seal":
            return _Seal(cache, inputs)
        return _Append(cache, inputs, case.tokens)


peer = NativePeer()
