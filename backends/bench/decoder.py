"""Times a language model end to end, by what its attention and cache are.

    python backends/bench/decoder.py [--tokens N...] [--threads N] [--only NAME...] [--parts]

In ONNX Runtime weights and all other operators are the same, int8 products over the stored codes;
llama.cpp runs the same file, where llama-cpp-python is installed. Each contestant has a process of
its own, and they take turns: a prompt each, then short runs of decoding, round by round. Shown are
medians and, for decoding, the median over the rounds of the ratio to the first contestant of the
same round.

With --parts, shares of a decoding step too: what nodes take is in ONNX Runtime's profile, "between
nodes" is the rest of the run, its scheduling and allocator. Our attention is one node; it is taken
apart by calls of the same kernels that lack a part, as the performance suite does: `scores` sums no
values, a cache of one short page leaves the transform of the query and what a call costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing as mp
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from contestants import CHUNK, CONTESTANTS, GROUP_QUERY, LLAMA_CPP, load, ort_backend

import kvassay
from kvassay import models
from kvassay.models.loading import read_config
from kvassay.models.texts import topics_tokens

ROUNDS: Final = 9
STEPS: Final = 6
SPARE: Final = 128
#: What nodes of a kind do, in the table's words.
PARTS: Final = {
    "Append": "append codec",
    "Attend": "attention",
    "GroupQueryAttention": "attention",
    "Linear": "weights",
}
#: A short page: what is left of a step is what it costs whatever the length.
_SHORT: Final = {"page_tokens": 16, "window": 0, "sinks": 0}


def work(
    pipe: Connection, name: str, path: Path, capacity: int, threads: int, profiled: bool
) -> None:
    """A contestant's process: answers each request with seconds and the chosen token."""
    with tempfile.TemporaryDirectory() as folder:
        decoder = load(name, path, capacity, threads, f"{folder}/run" if profiled else "")
        pipe.send(None)
        while (asked := pipe.recv()) is not None:
            began = time.perf_counter()
            token = run(decoder, *asked)
            pipe.send((time.perf_counter() - began, token))
        peak = _peak()
        shares = {}
        if profiled and name not in LLAMA_CPP:
            profile = Path(decoder.session.end_profiling())
            shares = parts(name, path, capacity - SPARE, threads, profile)
    pipe.send((decoder.cache_bytes, peak, shares))


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
    shares: dict[str, float] = field(default_factory=dict)

    def ask(self, tokens: Sequence[int], steps: int) -> float:
        """Seconds of one turn."""
        self.pipe.send((tokens, steps))
        seconds, self.last = self.pipe.recv()
        return float(seconds)


def start(name: str, path: Path, capacity: int, threads: int, profiled: bool) -> Contestant:
    """A contestant that is ready."""
    context = mp.get_context("spawn")
    mine, other = context.Pipe()
    given = (other, name, path, capacity, threads, profiled)
    process = context.Process(target=work, args=given, daemon=True)
    process.start()
    other.close()  # so that a process that dies is noticed
    mine.recv()
    return Contestant(name, mine, process)


def race(
    names: Sequence[str], path: Path, prompt: Sequence[int], threads: int, profiled: bool
) -> list[Contestant]:
    """All contestants over one prompt, by turns."""
    capacity = len(prompt) + SPARE
    contestants = [start(name, path, capacity, threads, profiled) for name in names]
    for one in contestants:
        one.prefill = one.ask(prompt, 0)
    for one in contestants:
        one.first = one.ask([one.last], 0)
    for _ in range(ROUNDS):
        for one in contestants:
            one.steps.append(one.ask([one.last], STEPS - 1) / STEPS)
    for one in contestants:
        one.pipe.send(None)
        one.held, one.peak, one.shares = one.pipe.recv()
        one.process.join()
    return contestants


def parts(name: str, path: Path, tokens: int, threads: int, profile: Path) -> dict[str, float]:
    """Shares of the last decoding steps that ONNX Runtime's profile tells of."""
    events = json.loads(profile.read_text(encoding="utf-8"))
    steps = sorted((e["ts"], e["dur"]) for e in events if e["name"] == "model_run")[-STEPS:]
    taken: Counter[str] = Counter()
    for event in events:
        node = event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
        if node and event["ts"] >= steps[0][0]:
            taken[PARTS.get(event["args"]["op_name"], "other nodes")] += event["dur"]
    total = sum(duration for _, duration in steps)
    taken["between nodes"] = total - sum(taken.values())
    if name not in GROUP_QUERY:
        attention = taken.pop("attention")
        for part, share in attention_parts(name, path, tokens, threads).items():
            taken[part] += round(attention * share)
    return {part: took / total for part, took in taken.items()}


def attention_parts(name: str, path: Path, tokens: int, threads: int) -> dict[str, float]:
    """Shares of one layer's attention of one query at this length."""
    shape = {**read_config(models.GGUFFile(path))[0].shape, "layers": 1}
    backend = ort_backend()
    rng = np.random.default_rng(0)
    rows, heads, dim = shape["kv_heads"], shape["query_heads"], shape["head_dim"]
    k, v = (rng.standard_normal((tokens, rows, dim), np.float32) for _ in range(2))
    query = rng.standard_normal((heads, dim), np.float32)
    spec, short_spec = kvassay.preset(name, **shape), kvassay.preset(name, **{**shape, **_SHORT})
    with backend.prepare(spec, threads) as cache, backend.prepare(short_spec, threads) as short:
        cache.append(0, k, v)
        short.append(0, k[:16], v[:16])
        attend, scores, fixed, fixed_scores = by_turns(
            lambda: cache.attend(0, query),
            lambda: cache.scores(0, query),
            lambda: short.attend(0, query),
            lambda: short.scores(0, query),
        )
    scan = max(0.0, scores - fixed_scores)
    rest = min(fixed, attend - scan)
    return {
        "query transform and call": rest / attend,
        "key scan": scan / attend,
        "softmax and value sum": (attend - scan - rest) / attend,
    }


def by_turns(*calls: Callable[[], Any]) -> list[float]:
    """Median seconds of each."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(60):
        for seconds, call in zip(taken, calls, strict=True):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
    return [statistics.median(seconds) for seconds in taken]


def table(contestants: Sequence[Contestant]) -> str:
    """Markdown; the first contestant is what ratios are to."""
    base = contestants[0]
    lines = [
        "| cache | prefill s | first step ms | tokens/s | speed to the first | cache MiB "
        "| peak RSS MiB | parts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in contestants:
        ratio = statistics.median(b / a for a, b in zip(one.steps, base.steps, strict=True))
        found = sorted(one.shares.items(), key=lambda item: -item[1])
        words = ", ".join(f"{part} {share:.0%}" for part, share in found) or "not measured"
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
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=None)
    parser.add_argument(
        "--parts", action="store_true", help="profile, which costs each node some us"
    )
    parser.add_argument("--model", type=Path, default=None, help="GGUF file; default: SmolLM2-135M")
    asked = parser.parse_args()
    path = asked.model or models.find_default()
    model = models.load(path)
    names = list(asked.only or CONTESTANTS)
    if importlib.util.find_spec("llama_cpp") is None:
        gone = [name for name in names if name in LLAMA_CPP]
        names = [name for name in names if name not in gone]
        print(f"not measured: {', '.join(gone)}: no llama_cpp; pip install llama-cpp-python")
    if not names:
        return 1
    print(f"onnxruntime {onnxruntime.__version__}, {asked.threads} thread(s), {path.name}")
    for length in asked.tokens:
        if not 0 < length <= model.config.context - SPARE:
            print(f"--tokens {length}: 1 to {model.config.context - SPARE}", file=sys.stderr)
            return 2
        prompt = [int(token) for token in topics_tokens(model, length)]
        found = race(names, path, prompt, asked.threads, asked.parts)
        print(f"\n{length} tokens\n\n{table(found)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
