"""The golden caches for a page: an index of the cases, and their bytes."""

from __future__ import annotations

import json

from .cases import CASES, QUERIES, SUFFIXES, read, spec_of


def files() -> dict[str, bytes]:
    """`golden/index.json` (cases in the order that numbers their inputs) and the golden files."""
    cases = [
        {"name": name, "spec": spec_of(name).to_dict(), "tokens": tokens, "queries": QUERIES}
        for name, (_, tokens) in CASES.items()
    ]
    found = {"golden/index.json": json.dumps(cases).encode()}
    for name in CASES:
        for suffix in SUFFIXES:
            if suffix != "json":
                found[f"golden/{name}.{suffix}"] = read(name, suffix)
    return found
