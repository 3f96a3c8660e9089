"""Writes golden files that do not exist yet: `python -m kvassay_suites.golden.write`.

Existing files are never overwritten: a change of format gets new cases or new names. Two
independent backends must agree before anything is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import kvassay
from kvassay.protocol import Backend

from .cases import CASES, SUFFIXES, config, folder, inputs, spec_of


def produce(backend: Backend, name: str) -> dict[str, bytes]:
    """The files of a case, by suffix."""
    spec = spec_of(name)
    scores, outputs = [], []
    with backend.prepare(spec) as cache:
        for layer in range(spec.layers):
            k, v, q = inputs(name, layer)
            cache.append(layer, k, v)
            scores.append(cache.scores(layer, q[-1]).astype("<f4").tobytes())
            outputs.append(cache.attend(layer, q).astype("<f4").tobytes())
        dump = cache.dump()
    text = json.dumps(config(name), indent=1, sort_keys=True) + "\n"
    return {
        "json": text.encode(),
        "dump": dump,
        "scores": b"".join(scores),
        "outputs": b"".join(outputs),
    }


def main() -> int:
    """Write the missing cases; exit status 1 if the two backends differ."""
    reference, native = kvassay.load("reference"), kvassay.load("native", "scalar")
    target = Path(str(folder()))
    target.mkdir(exist_ok=True)
    for name in CASES:
        paths = {suffix: target / f"{name}.{suffix}" for suffix in SUFFIXES}
        if any(path.exists() for path in paths.values()):
            print(f"{name}: exists, left as it is")
            continue
        content = produce(reference, name)
        if produce(native, name) != content:
            print(f"{name}: reference and native differ; nothing written", file=sys.stderr)
            return 1
        for suffix, path in paths.items():
            path.write_bytes(content[suffix])
        print(f"{name}: written, {sum(map(len, content.values()))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
