"""A deterministic pairwise covering array: every pair of values of any two factors meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np


def pairwise(factors: Mapping[str, Sequence[Any]], candidates: int = 4) -> list[dict[str, Any]]:
    """Rows that cover all pairs: each row starts from an uncovered pair and grows greedily.

    Of `candidates` rows, which visit the factors in different pseudo-random orders, the one that
    covers most new pairs is kept (the method of AETG). The same factors give the same rows.
    """
    names = list(factors)
    sizes = [len(factors[name]) for name in names]
    pairs = list(combinations(range(len(names)), 2))
    open_pairs = {(a, b): np.ones((sizes[a], sizes[b]), bool) for a, b in pairs}
    random = np.random.Generator(np.random.PCG64(0))
    rows = []
    while (left := [pair for pair in pairs if open_pairs[pair].any()]) != []:
        trials = [_grow(left, open_pairs, sizes, random) for _ in range(candidates)]
        row = max(trials, key=lambda trial: _gain(trial, open_pairs, pairs))
        for a, b in pairs:
            open_pairs[a, b][row[a], row[b]] = False
        rows.append({name: factors[name][row[i]] for i, name in enumerate(names)})
    return rows


def _grow(
    left: list[tuple[int, int]],
    open_pairs: dict[tuple[int, int], np.ndarray[Any, np.dtype[np.bool_]]],
    sizes: list[int],
    random: np.random.Generator,
) -> list[int]:
    most = max(left, key=lambda pair: int(open_pairs[pair].sum()))
    options = np.argwhere(open_pairs[most])
    row = dict(zip(most, map(int, options[random.integers(len(options))]), strict=True))
    for factor in map(int, random.permutation(len(sizes))):
        if factor in row:
            continue
        gains = np.zeros(sizes[factor])
        for other, value in row.items():
            first, second = sorted((factor, other))
            table = open_pairs[first, second]
            gains += table[:, value] if factor == first else table[value]
        best = np.flatnonzero(gains == gains.max())
        row[factor] = int(best[random.integers(len(best))])
    return [row[factor] for factor in range(len(sizes))]


def _gain(
    row: list[int],
    open_pairs: dict[tuple[int, int], np.ndarray[Any, np.dtype[np.bool_]]],
    pairs: list[tuple[int, int]],
) -> int:
    return sum(bool(open_pairs[a, b][row[a], row[b]]) for a, b in pairs)
