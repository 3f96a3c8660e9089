"""Times the WebAssembly modules beside each other, beside plain attention, and beside native.

    python backends/bench/modules.py attend [TOKENS [NAMES]] | kernels [BITS [NAMES]]

NAMES, comma-separated, picks the lines that contain one of them. Builds each module once more with
`src/bench/wasm_bench.c`, whose loops are long enough for the clock. All contestants take turns in
one process; shown is the least CPU time of many short samples, which other processes can only
lengthen, and its ratio to the first line.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.protocol import FloatArray
from kvassay_backends.wasm.backend import WasmBackend
from kvassay_backends.wasm.cache import WasmCache
from kvassay_backends.wasm.module import Module

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))

import library
import recipe

KV_HEADS: Final = 1
GROUP: Final = 4
HEAD_DIM: Final = 128
#: Seconds of one sample, and samples of each contestant.
SAMPLE: Final = 0.0003
ROUNDS: Final = 4000
#: Seconds after which no further round begins.
BUDGET: Final = 60.0
KERNELS: Final = (
    *("keyscan", "keyscan15", "valuesum", "exponentials", "logits", "weigh", "maximum", "blend"),
    *("dots", "weighted", "narrow", "quantize", "pack_keys", "pack_values", "crc32"),
)
MODES: Final = {"2": 20, "2.5": 21, "3": 22, "3.5": 23, "4": 24}


@dataclass
class Contestant:
    """Something to time: `run(times)` does its work so often, for `tokens` tokens and KV heads."""

    name: str
    run: Callable[[int], object]
    tokens: int


def modules() -> dict[str, Module]:
    """The modules of all variants with the bench's functions."""
    found = {}
    bench = recipe.SOURCES / "bench" / "wasm_bench.c"
    with tempfile.TemporaryDirectory() as folder:
        for name, isa in recipe.ISAS["wasm32"].items():
            path = Path(folder) / f"{name}.wasm"
            unit = recipe.Unit(bench, flags=(*isa.flags, f"-DKV_ISA={name}"))
            library.link_wasm([*recipe.wasm_sources(name), unit], "bench", path)
            found[name] = Module.open(path)
    return found


def race(contestants: list[Contestant]) -> dict[str, float]:
    """Nanoseconds a token and KV head, turn by turn: the least time of all samples, less that of a
    call without work, which is most of a short one."""
    times = {one.name: _times(one) for one in contestants}
    full, empty = (dict.fromkeys(times, float("inf")) for _ in range(2))
    began = time.monotonic()
    for _ in range(ROUNDS):
        for one in contestants:
            empty[one.name] = min(empty[one.name], _seconds(one, 0))
            full[one.name] = min(full[one.name], _seconds(one, times[one.name]))
        if time.monotonic() - began > BUDGET:
            break
    return {
        one.name: (full[one.name] - empty[one.name]) / times[one.name] / one.tokens * 1e9
        for one in contestants
    }


def _times(one: Contestant) -> int:
    """How often the work is done in one sample."""
    empty = min(_seconds(one, 0) for _ in range(5))
    times = 1
    while min(_seconds(one, times) for _ in range(3)) < empty + SAMPLE / 2:
        times *= 2
    return times


def _seconds(one: Contestant, times: int) -> float:
    before = time.thread_time()
    one.run(times)
    return time.thread_time() - before


def attend(tokens: int) -> list[Contestant]:
    """Fused decode of one token: presets on every variant, plain attention, native."""
    built = modules()
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, tokens, KV_HEADS, HEAD_DIM), np.float32)
    q = rng.standard_normal((KV_HEADS * GROUP, HEAD_DIM), np.float32)
    found = []
    shape = {"layers": 1, "kv_heads": KV_HEADS, "query_heads": KV_HEADS * GROUP}
    for preset in ("turbo", "kivi", "fp16"):
        spec = kvassay.preset(preset, head_dim=HEAD_DIM, **shape)
        for name, module in built.items():
            cache = WasmBackend("bench", module, name).prepare(spec)
            cache.append(0, k, v)
            found.append(Contestant(f"{preset} {name}", _attending(cache, q), KV_HEADS * tokens))
        for variant in ("avx2", "scalar"):
            native = kvassay.load("native", variant).prepare(spec)
            native.append(0, k, v)
            found.append(
                Contestant(f"{preset} native {variant}", _repeating(native, q), KV_HEADS * tokens)
            )
    for name in ("simd128", "relaxed"):
        for size, dtype in ((32, np.float32), (16, np.float16)):
            run = _plain(built[name], size, k.astype(dtype), v.astype(dtype), q)
            found.append(Contestant(f"plain fp{size} {name}", run, KV_HEADS * tokens))
    return found


def _attending(cache: Any, q: FloatArray) -> Callable[[int], object]:
    assert isinstance(cache, WasmCache)
    instance = cache.instance
    room = instance.take(2 * q.nbytes)
    instance.memory.write_array(room, q)
    bench = instance.export("bench_attend")
    return lambda times: bench(cache.pointer, room, room + q.nbytes, times)


def _repeating(cache: Any, q: FloatArray) -> Callable[[int], object]:
    def run(times: int) -> None:
        for _ in range(times):
            cache.attend(0, q)

    return run


def _plain(module: Module, size: int, k: Any, v: Any, q: FloatArray) -> Callable[[int], object]:
    instance = WasmBackend("bench", module, "plain").desk
    ours = [np.ascontiguousarray(x.transpose(1, 0, 2)) for x in (k, v)]
    addresses = [instance.take(x.nbytes) for x in (*ours, q, q)]
    for address, x in zip(addresses, (*ours, q * np.float32(1.4427 / HEAD_DIM**0.5)), strict=False):
        instance.memory.write_array(address, x)
    bench, tokens = instance.export(f"bench_plain{size}"), len(k)
    keys, values, query, out = addresses
    return lambda times: bench(keys, values, KV_HEADS, tokens, HEAD_DIM, query, out, times)


def kernels(mode: int) -> list[Contestant]:
    """Every kernel on every variant, 64 tokens, four rows."""
    built = {
        name: WasmBackend("bench", module, name).desk.export("bench_kernel")
        for name, module in modules().items()
    }
    return [
        Contestant(f"{kernel} {name}", _kernel(bench, number, mode), 64)
        for number, kernel in enumerate(KERNELS)
        for name, bench in built.items()
    ]


def _kernel(bench: Any, number: int, mode: int) -> Callable[[int], object]:
    return lambda times: bench(number, mode, HEAD_DIM, GROUP, times)


def main() -> None:
    """Run and print."""
    what = sys.argv[1] if len(sys.argv) > 1 else "attend"
    given = sys.argv[2] if len(sys.argv) > 2 else ""
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else [""]
    all_ = kernels(MODES[given or "3.5"]) if what == "kernels" else attend(int(given or 4096))
    found = race([one for one in all_ if any(name in one.name for name in names)])
    first = next(iter(found.values()))
    for name, nanoseconds in found.items():
        print(f"{name:24} {nanoseconds:9.2f} ns a token and KV head {first / nanoseconds:7.2f} x")


if __name__ == "__main__":
    main()
