"""What the suites give to a page: the golden caches with an index, and measuring tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .cases import CASES, QUERIES, SUFFIXES, read, spec_of

_TOOLS = Path(__file__).resolve().parents[1] / "browser" / "page"
_EXACT_IN_JAVASCRIPT = 2**53


def files() -> dict[str, Path | bytes]:
    """`golden/index.json` (cases in the order that numbers their inputs), the golden files, and
    `measure/` with the clock and the adversarial operands.
    """
    cases = [
        {"name": name, "spec": _plain_spec(name), "tokens": tokens, "queries": QUERIES}
        for name, (_, tokens) in CASES.items()
    ]
    found: dict[str, Path | bytes] = {"golden/index.json": json.dumps(cases).encode()}
    for name in CASES:
        for suffix in SUFFIXES:
            if suffix != "json":
                found[f"golden/{name}.{suffix}"] = read(name, suffix)
    for tool in ("clock.mjs", "relaxed.mjs"):
        found[f"measure/{tool}"] = _TOOLS / tool
    return found


def _plain_spec(name: str) -> dict[str, Any]:
    """The spec as JSON that JavaScript reads without loss: large integers as digits."""
    spec = spec_of(name).to_dict()
    return {**spec, "seed": _digits(spec["seed"])}


def _digits(seed: int) -> int | str:
    return seed if seed < _EXACT_IN_JAVASCRIPT else str(seed)
