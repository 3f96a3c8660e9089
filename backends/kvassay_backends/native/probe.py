"""Tries a library in a child process.

Usage: `python -m kvassay_backends.native.probe LIBRARY OUT [SKIP...]`.

Loading and running code that is built for another CPU, or that someone else wrote, may kill the
process. So each variant is tried here; OUT gets a JSON line before and after each one, and the
parent sees which one was running when this process died. Variants in SKIP are only listed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from kvassay.errors import KvassayError
from kvassay.protocol import Backend
from kvassay.spec import Spec

from .abi import Library
from .kernel_backend import open_backend

#: One spec a codec family; small, so that listing backends stays quick.
_CODECS: Final = (
    ("fp16", "fp16"),
    ("turbo:3.5", "turbo:3"),
    ("turbo:2+qjl", "turbo:4"),
    ("kivi:2", "kivi:4"),
)


def exercise(backend: Backend) -> str:
    """Seal pages, attend and score with every codec family; what went wrong, or "".

    A family that the backend does not support is left out.
    """
    rows = np.random.default_rng(1).standard_normal((40, 1, 64), np.float32)
    tried = 0
    for keys, values in _CODECS:
        spec = Spec(1, 1, 1, 64, keys=keys, values=values, page_tokens=16)
        if not backend.supports(spec):
            continue
        with backend.prepare(spec) as cache:
            cache.append(0, rows, rows)
            outputs = (cache.attend(0, rows[:2]), cache.scores(0, rows[0]))
            if not all(np.isfinite(out).all() for out in outputs):
                return f"{keys}/{values}: NaN or infinity from finite tokens"
            ran = ", ".join(cache.counters.variants_ran)
            if ran != backend.variant:
                return f"{keys}/{values}: {ran or 'nothing'} ran instead of {backend.variant}"
        tried += 1
    return "" if tried else "supports none of the codec families"


def state(library: Library, number: int) -> tuple[str, str]:
    """(status, reason) of a variant of an open library."""
    error = library.new_error()
    if library.lib.kv_variant_runs(number, error) != library.lib.KV_OK:
        return "unsupported-cpu", library.text(error.message)
    try:
        reason = exercise(open_backend("probe", library, library.variants[number]))
    except KvassayError as failure:
        reason = f"{type(failure).__name__}: {failure}"
    return ("broken", reason) if reason else ("ready", "")


def main(arguments: Sequence[str]) -> int:
    """Write one line a step into OUT, flushed, since the next step may be the last."""
    path, out, *skip = arguments
    with open(out, "w", encoding="utf-8") as stream:

        def say(**line: Any) -> None:
            print(json.dumps(line), file=stream, flush=True)

        say(loading=path)
        try:
            library = Library(Path(path))
        except KvassayError as error:
            say(refused=str(error))
            return 0
        say(build_id=library.build_id, variants=library.variants)
        for number, name in enumerate(library.variants):
            if name not in skip:
                say(trying=name)
                status, reason = state(library, number)
                say(variant=name, status=status, reason=reason)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
