"""Times a language model in ONNX Runtime, end to end, by what its attention and cache are.

    python backends/decoder_bench.py [--tokens N...] [--threads N] [--only NAME...] [--model FILE]

Weights and all other operators are the same, int8 products over the stored 4 bits. Each contestant
has a process of its own, and they take turns: a prompt each, then short runs of decoding, round by
round. Shown are medians and, for decoding, the median over the rounds of the ratio to the first
contestant of the same round. `parts` are shares of the time of a decoding step by ONNX Runtime's
own profile.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

import kvassay
from kvassay import models
from kvassay.models.loading import read_config
from kvassay.models.onnx import GroupQuery, build
from kvassay_backends.ort import backend as provider
from kvassay_backends.ort.decoder import Decoder
from kvassay_backends.ort.linear import KvassayLinear
from kvassay_backends.ort.onnx_backend import OrtBackend
from kvassay_backends.ort.sessions import options

PRESETS: Final = ("turbo", "kivi", "fp16")
PEERS: Final = {"gqa-fp32": False, "gqa-fp16": True}
CONTESTANTS: Final = ("gqa-fp32", "gqa-fp16", *PRESETS)
CHUNK: Final = 512
ROUNDS: Final = 9
STEPS: Final = 6
SPARE: Final = 128
#: What nodes of a kind do, in the table's words.
PARTS: Final = {
    "Append": "append",
    "Attend": "attention",
    "GroupQueryAttention": "attention",
    "Linear": "weights",
}


class GroupQueryDecoder:
    """The same model with ONNX Runtime's own attention over shared buffers."""

    def __init__(
        self, path: Path, half: bool, capacity: int, linear: KvassayLinear, chosen: Any
    ) -> None:
        model, self.config = build(path, GroupQuery(half), linear=linear)
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
        )
        shape = (1, self.config.kv_heads, capacity, self.config.head_dim)
        kind = np.float16 if half else np.float32
        self.caches = [np.zeros(shape, kind) for _ in range(2 * self.config.layers)]
        self._values = [onnxruntime.OrtValue.ortvalue_from_numpy(cache) for cache in self.caches]
        self.length = 0

    def step(self, tokens: Sequence[int]) -> Any:
        """Logits (vocabulary,) after these tokens, which are appended to the cache."""
        binding: Any = self.session.io_binding()
        end = self.length + len(tokens)
        binding.bind_cpu_input("tokens", np.asarray(tokens, np.int64))
        binding.bind_cpu_input("start", np.array([self.length], np.int64))
        binding.bind_cpu_input("seqlens_k", np.array([end - 1], np.int32))
        binding.bind_cpu_input("total_length", np.array([end], np.int32))
        for number, value in enumerate(self._values):
            stream = ("key", "value")[number % 2]
            binding.bind_ortvalue_input(f"past_{stream}.{number // 2}", value)
            binding.bind_ortvalue_output(f"present_{stream}.{number // 2}", value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        self.length = end
        return binding.get_outputs()[-1].numpy()[0]


def open_decoder(name: str, path: Path, capacity: int, threads: int, profile: str = "") -> Any:
    """A contestant; with `profile` ONNX Runtime writes how long each node took."""
    variants = provider.variants()
    backend = provider.load(next(key for key, state in variants.items() if state.runs))
    assert isinstance(backend, OrtBackend)
    chosen = options(backend.library_path)
    chosen.intra_op_num_threads = threads
    if profile:
        chosen.enable_profiling, chosen.profile_file_prefix = True, profile
    if name in PEERS:
        return GroupQueryDecoder(
            path, PEERS[name], capacity, KvassayLinear.of(backend, threads), chosen
        )
    config, _ = read_config(models.GGUFFile(path))
    return Decoder(
        path, backend, kvassay.preset(name, **config.shape), capacity, "int8", threads, chosen
    )


def work(pipe: Connection, name: str, path: Path, capacity: int, threads: int) -> None:
    """A contestant's process: answers each request with seconds and the chosen token."""
    decoder = open_decoder(name, path, capacity, threads)
    pipe.send(None)
    while (asked := pipe.recv()) is not None:
        began = time.perf_counter()
        token = run(decoder, *asked)
        pipe.send((time.perf_counter() - began, token))
    pipe.send((sum(cache.nbytes for cache in decoder.caches), _peak()))


def run(decoder: Any, tokens: Sequence[int], steps: int) -> int:
    """Feed tokens in chunks, then decode greedily so many steps; the last token chosen."""
    row: Any = None
    for start in range(0, len(tokens), CHUNK):
        row = decoder.step(tokens[start : start + CHUNK])
    for _ in range(steps):
        row = decoder.step([int(row.argmax())])
    return int(row.argmax())


def _peak() -> int:
    """The highest resident bytes of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass
class Contestant:
    """A process and what it took."""

    name: str
    pipe: Connection
    process: Any
    prefill: float = 0.0
    first: float = 0.0
    last: int = 0
    steps: list[float] = field(default_factory=list)
    held: int = 0
    peak: int = 0

    def ask(self, tokens: Sequence[int], steps: int) -> float:
        """Seconds of one turn."""
        self.pipe.send((tokens, steps))
        seconds, self.last = self.pipe.recv()
        return float(seconds)


def start(name: str, path: Path, capacity: int, threads: int) -> Contestant:
    """A contestant that is ready."""
    context = mp.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=work, args=(other, name, path, capacity, threads), daemon=True)
    process.start()
    mine.recv()
    return Contestant(name, mine, process)


def race(names: Sequence[str], path: Path, prompt: Sequence[int], threads: int) -> list[Contestant]:
    """All contestants over one prompt, by turns."""
    capacity = len(prompt) + SPARE
    contestants = [start(name, path, capacity, threads) for name in names]
    for one in contestants:
        one.prefill = one.ask(prompt, 0)
    for one in contestants:
        one.first = one.ask([one.last], 0)
    for _ in range(ROUNDS):
        for one in contestants:
            one.steps.append(one.ask([one.last], STEPS - 1) / STEPS)
    for one in contestants:
        one.pipe.send(None)
        one.held, one.peak = one.pipe.recv()
        one.process.join()
    return contestants


def parts(name: str, path: Path, prompt: Sequence[int], threads: int) -> dict[str, float]:
    """Share of a decoding step by what its nodes do."""
    with tempfile.TemporaryDirectory() as folder:
        capacity = len(prompt) + SPARE
        decoder = open_decoder(name, path, capacity, threads, f"{folder}/run")
        run(decoder, prompt, 0)
        run(decoder, [0], STEPS)
        profile = Path(decoder.session.end_profiling())
        events = json.loads(profile.read_text(encoding="utf-8"))
    runs = [event for event in events if event["name"] == "model_run"]
    since = sorted(event["ts"] for event in runs)[-STEPS]
    seconds: Counter[str] = Counter()
    for event in events:
        if (
            event.get("cat") == "Node"
            and event["name"].endswith("_kernel_time")
            and event["ts"] >= since
        ):
            seconds[PARTS.get(event["args"]["op_name"], "rest")] += event["dur"]
    total = sum(seconds.values())
    return {part: took / total for part, took in seconds.items()}


def table(contestants: Sequence[Contestant], shares: dict[str, dict[str, float]]) -> str:
    """Markdown; the first contestant is what ratios are to."""
    base = contestants[0]
    lines = [
        "| cache | prefill s | first step ms | tokens/s | speed to the first | cache MiB "
        "| peak RSS MiB | parts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in contestants:
        ratio = statistics.median(b / a for a, b in zip(one.steps, base.steps, strict=True))
        words = ", ".join(f"{part} {share:.0%}" for part, share in sorted(shares[one.name].items()))
        lines.append(
            f"| {one.name} | {one.prefill:.2f} | {one.first * 1e3:.1f} "
            f"| {1 / statistics.median(one.steps):.1f} | {ratio:.2f} | {one.held / 2**20:.1f} "
            f"| {one.peak / 2**20:.0f} | {words} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Print a table for each prompt length."""
    parser = argparse.ArgumentParser(description="a model in ONNX Runtime, end to end")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 7936])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--model", type=Path, default=None, help="GGUF file; default: SmolLM2-135M")
    asked = parser.parse_args()
    path = asked.model or models.find_default()
    model = models.load(path)
    text = model.tokenizer.encode(" ".join(["The quick brown fox jumps over the lazy dog."] * 1200))
    print(f"onnxruntime {onnxruntime.__version__}, {asked.threads} thread(s), {path.name}")
    for length in asked.tokens:
        if not 0 < length <= min(len(text), model.config.context - SPARE):
            print(f"--tokens {length}: 1 to {model.config.context - SPARE}", file=sys.stderr)
            return 2
        prompt = [int(token) for token in text[:length]]
        found = race(asked.only, path, prompt, asked.threads)
        shares = {name: parts(name, path, prompt, asked.threads) for name in asked.only}
        print(f"\n{length} tokens\n\n{table(found, shares)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
