"""Experiment B beside other people's indexes: same data, same bytes, one thread, by turns.

python -m kvassay_suites.retrieval --data isotropic:32768x128 --data embeddings:1000x384
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # turbovec reads it when it is imported

import numpy as np

from kvassay.errors import KvassayError

from .contenders import Contender, Search, contenders
from .data import Data, load_data, recall

DEFAULT: Final = ("isotropic:32768x128", "anisotropic:32768x128")
_BATCH: Final = 64
_MOST_RUNS: Final = 50


@dataclass
class Row:
    """A contender and what was measured of it."""

    contender: Contender
    search: Search | None = None
    reason: str = ""
    recall: float = 0.0
    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each data set; 1 if no peer was measured, 2 for bad usage."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--data", action="append", metavar="NAME:NxD", default=[])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn, at least")
    parser.add_argument("--bits", type=int, action="append", default=[])
    options = parser.parse_args(arguments)
    peers = 0
    try:
        for text in options.data or DEFAULT:
            name, _, shape = text.partition(":")
            n, dim = (int(part) for part in shape.split("x"))
            rows = compare(
                load_data(name, n, dim),
                tuple(options.bits) or (4, 2),
                options.rounds,
                options.seconds,
            )
            peers += sum(row.search is not None and not row.contender.ours for row in rows)
            print("\n".join(table(text, rows, n, dim)), flush=True)
    except (KvassayError, KeyError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not peers:
        print("error: no peer was measured", file=sys.stderr)
    return 0 if peers else 1


def compare(given: Data, bits: tuple[int, ...], rounds: int, seconds: float) -> list[Row]:
    """Everybody has a turn in each round, in a random order."""
    rows = [Row(contender) for contender in contenders(bits)]
    for row in rows:
        try:
            row.search = row.contender.build(given.x)
            row.recall = recall(row.search(given.q), given.best)
        except KvassayError as error:
            row.search, row.reason = None, str(error)
    random = np.random.default_rng(1)
    able = [row for row in rows if row.search is not None]
    many = np.resize(given.q, (_BATCH, given.q.shape[1]))
    for _ in range(rounds):
        for i in random.permutation(len(able)):
            search = able[i].search
            assert search is not None
            able[i].one.append(_turn(search, given.q[:1].copy(), seconds))
            able[i].many.append(_turn(search, many, seconds) / _BATCH)
    return rows


def _turn(search: Search, q: np.ndarray, seconds: float) -> float:
    """The fastest run of a turn: on a shared machine others only add time."""
    search(q)
    best, begun = np.inf, time.perf_counter()
    for _ in range(_MOST_RUNS):
        start = time.perf_counter()
        search(q)
        end = time.perf_counter()
        best = min(best, end - start)
        if end - begun > seconds:
            break
    return float(best)


def table(title: str, rows: list[Row], n: int, dim: int) -> list[str]:
    """Markdown: each row beside the last of ours of the same bits; what it loses is marked."""
    base = {row.contender.bits: row for row in rows if row.contender.ours}
    lines = [
        f"\n{title}, {os.cpu_count()} cores, 1 thread; time over ours of the same bits\n",
        "| index | bytes | Recall@10 | one query, us | GB/s | over ours | of 64, us | over ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        contender = row.contender
        if row.search is None:
            lines.append(f"| {contender.name} | not measured: {row.reason} | | | | | | |")
            continue
        one, many, ours = min(row.one), min(row.many), base.get(contender.bits)
        speed = n * dim * contender.bits / 8 / one / 1e9
        ratios = ("", "")
        if ours is not None:
            peer = not contender.ours
            ratios = (_ratio(row.one, ours.one, peer), _ratio(row.many, ours.many, peer))
        found = f"{row.recall:.4f}"
        if ours is not None and not contender.ours and row.recall > ours.recall:
            found += " (ours loses)"
        lines.append(
            f"| {contender.name} | {contender.bytes_of(dim):g} | {found} | {one * 1e6:.1f} | "
            f"{speed:.1f} | {ratios[0]} | {many * 1e6:.1f} | {ratios[1]} |"
        )
    return lines


def _ratio(times: list[float], ours: list[float], peer: bool) -> str:
    """The median over rounds."""
    ratio = float(np.median(np.divide(times, ours)))
    return f"{ratio:.2f}" + (" (ours loses)" if peer and ratio < 1 else "")


if __name__ == "__main__":
    sys.exit(main())
