"""The program whose instructions are counted: steps of one layer, marked by `os.getppid`.

    python counted.py '{"targets": ["native/avx2"], "presets": ["turbo"], "tokens": 1028}'

It prints, by target, a checksum of what attention returned with each preset, or the error that
came instead of all counts. Spans between marks come in a fixed order: nothing (the price of a
mark), then the operations of every preset of every target that ran. What is used of kvassay is what
every commit offers, since the history of benchmarks runs this file against old ones too.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: What is counted of each preset, in order.
OPERATIONS: Final = ("attend", "scores", "append")
SHAPE: Final[dict[str, Any]] = {"kv_heads": 2, "query_heads": 8, "head_dim": 128}
#: Tokens that an append adds one by one; one of them seals a page.
PAGE: Final = 64

Outputs = Mapping[str, Mapping[str, str]]


def main(targets: Sequence[str], presets: Sequence[str], tokens: int) -> None:
    """Mark and work."""
    import kvassay

    gc.disable()
    os.getppid()
    os.getppid()
    outputs: dict[str, dict[str, str]] = {}
    for target in targets:
        try:
            loaded = kvassay.load(*target.split("/"))
        except kvassay.errors.KvassayError as error:
            outputs[target] = {"error": str(error)}
        else:
            outputs[target] = {preset: _work(loaded, preset, tokens) for preset in presets}
    print(json.dumps(outputs))


def inputs(tokens: int) -> Any:
    """Keys, values (tokens, 2, 128) and a query (8, 128), float32, pinned."""
    import numpy as np

    random = np.random.default_rng(0)
    shape = (2, tokens, SHAPE["kv_heads"], SHAPE["head_dim"])
    k, v = random.standard_normal(shape, np.float32)
    return k, v, random.standard_normal((SHAPE["query_heads"], SHAPE["head_dim"]), np.float32)


def _work(loaded: Any, preset: str, tokens: int) -> str:
    import kvassay

    k, v, q = inputs(tokens)
    cache = loaded.prepare(kvassay.preset(preset, layers=1, **SHAPE))
    cache.append(0, k, v)
    cache.attend(0, q)  # what is made at first use is there from then on
    cache.scores(0, q)
    os.getppid()
    out = cache.attend(0, q)
    os.getppid()
    cache.scores(0, q)
    os.getppid()
    for token in range(PAGE):
        cache.append(0, k[token : token + 1], v[token : token + 1])
    os.getppid()
    cache.close()
    return checksum(out)


def checksum(out: Any) -> str:
    """SHA-256 of the bytes of float32 values, shortened."""
    return hashlib.sha256(out.astype("<f4").tobytes()).hexdigest()[:16]


def read(counts: Sequence[int], outputs: Outputs) -> dict[str, dict[str, dict[str, int]]]:
    """Instructions by target, preset and operation, less those of a mark.

    Raises ValueError where there are more or fewer spans than the outputs account for.
    """
    mark, *rest = counts
    ran = [(t, p) for t, presets in outputs.items() if "error" not in presets for p in presets]
    each = len(OPERATIONS) + 1  # a preset's first span makes it ready
    if len(rest) != each * len(ran):
        raise ValueError(f"{len(rest)} spans for {len(ran)} presets of {each} each")
    found: dict[str, dict[str, dict[str, int]]] = {target: {} for target, _ in ran}
    for place, (target, preset) in enumerate(ran):
        spans = rest[each * place + 1 : each * (place + 1)]
        found[target][preset] = {
            name: span - mark for name, span in zip(OPERATIONS, spans, strict=True)
        }
    return found


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
