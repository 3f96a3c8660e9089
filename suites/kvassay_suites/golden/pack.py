"""The golden pack: plain files and a manifest with which a runtime in any language tests itself.

The manifest `pack.json` is kept, with the digest of every file. The arrays are computed anew from
pinned inputs when a pack is written, by `steps`, and one that does not have its digest is an error:
nothing regenerates itself. `python -m kvassay_suites.golden.pack` writes a manifest where none is.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from kvassay.errors import KvassayError

from ..oracle import read_dump
from .cases import CASES, QUERIES, read, spec_of
from .steps import PACKED, Arrays, steps

VERSION: Final = 2
MANIFEST: Final = Path(__file__).with_name("pack.json")
PROGRAM: Final = Path(__file__).with_name("pack_check.mjs")

#: What each array is, by the part of its name after the first point, or the whole name.
MEANINGS: Final = {
    "keys": "float32 keys appended, [token][kv head][channel]",
    "values": "float32 values appended, [token][kv head][channel]",
    "query": "the query, [query head][channel]",
    "signs": "sign bits of the projection, 1 where it is not negative (section 5)",
    "signs1": "s1 of the stream's transform T, 1 or -1 a channel (section 4)",
    "order": "perm of the stream's transform T: gather(y)[i] = y[order[i]]; unused with one round",
    "signs2": "s2 of the stream's transform T, 1 or -1 a channel; unused with one round",
    "gain": "store and read gain",
    "thresholds": "thresholds of a span of channels, in units of sigma (section 5)",
    "centroids": "positive half of its integer codebook",
    "mean": "what is taken off before the transform, [page][kv head][channel] (section 3)",
    "residual": "r, [page][kv head][token][channel]",
    "transformed": "y = T(r), T of the same stream, [page][kv head][token][channel]",
    "query.transformed": "z = T(ql), T of the keys and ql query.scaled, [query head][channel]",
    "sigma": "sqrt(n2 / d), [page][kv head][token]",
    "codes": "codes; of the query its 7-bit integers; of fp16 streams the tokens",
    "minima": "lo of each group of 32, as in the page (section 6)",
    "steps": "step of each group of 32, as in the page (section 6)",
    "error": "e, [page][kv head][token][channel]",
    "norm": "norm of e times the store gain, [page][kv head][token]",
    "norm_stored": "as stored in the page",
    "norm_maximum": "largest norm of the page, [page][kv head]",
    "norm_read": "gu, [page][kv head][token]",
    "norm_unit": "gunit, [page][kv head]",
    "projected": "w = T2(e); of the query z2 = T2(z)",
    "projected_codes": "qi2, 7-bit integers",
    "projected_unit": "qs2, [query head]",
    "query.constant": "K (section 7)",
    "query_codes": "qi with the steps of each group of tokens, [page][query head][group][channel]",
    "query_unit": "qs, [page][query head][group]",
    "bias": "of each group of tokens, [page][query head][group]",
    "sign_sums": "I2, [page][query head][token]",
    "value_minima": "S16(p * lo), [page][query head][group of channels]",
    "value_output": "x, [page][query head][channel]",
    "scale": "exact scale times the store gain, [page][kv head][token]",
    "scale_stored": "as stored in the page",
    "scale_maximum": "largest scale of the page, [page][kv head]",
    "scale_read": "su, [page][kv head][token]",
    "scale_unit": "unit, [page][kv head]; the scale is su * unit",
    "scaled": "ql: query times log2(e) and the softmax scale (section 7)",
    "unit": "qs, [query head]",
    "recent.tokens": "numbers of the tokens held as fp16: sinks, then the residual",
    "recent.logits": "t, [query head][fp16 token] (section 8)",
    "recent.maximum": "M0 (section 10)",
    "recent.weights": "p = ex2(t - M0)",
    "recent.sum": "l0",
    "recent.output": "R, [query head][channel]",
    "sums": "I, [page][query head][token]",
    "logits": "t, [page][query head][token]",
    "maximum": "mp, [page][query head]",
    "weights": "p = ex2(t - mp)",
    "sum": "Ps",
    "value_weights": "iw, 14 bits, [page][query head], of kivi [group], [token]",
    "value_sums": "A, [page][query head][channel]",
    "running_maximum": "M of the chunk after the page",
    "running_sum": "l of the chunk after the page",
    "running_output": "acc of the chunk after the page",
    "total.sum": "l after the fold",
    "total.output": "acc after the fold, before the way back",
    "scores": "what scores() returns, [query head][token]",
    "output": "what attend() returns, [query head][channel]",
    "pages": "sealed pages as bytes (docs/page-format.md), [page][byte]",
    "dump": "the whole cache as one dump (docs/page-format.md)",
}


#: Streams of a page (docs/page-format.md) and the arrays that are in them.
STREAMS: Final = {
    **{f"{stream} codes": f"{stream}.codes" for stream in ("key", "value")},
    **{f"{stream} scales": f"{stream}.scale_stored" for stream in ("key", "value")},
    **{f"{stream} maxima": f"{stream}.scale_maximum" for stream in ("key", "value")},
    **{f"{stream} steps": f"{stream}.steps" for stream in ("key", "value")},
    **{f"{stream} minima": f"{stream}.minima" for stream in ("key", "value")},
    **{"key signs": "key.signs", "key norms": "key.norm_stored"},
    **{"norm maxima": "key.norm_maximum", "key mean": "key.mean"},
}


def files() -> dict[str, bytes]:
    """The pack: path in it to content. Raises KvassayError where an array is not the kept one."""
    manifest = MANIFEST.read_bytes()
    found, described = _cases()
    kept = json.loads(manifest)["cases"]
    for case, arrays in described.items():
        for name, entry in arrays["arrays"].items():
            if kept.get(case, {}).get("arrays", {}).get(name) != entry:
                raise KvassayError(
                    f"golden pack: {case} {name} as computed here is not the one kept in "
                    f"{MANIFEST.name}; this machine's float32 arithmetic or the code has changed"
                )
    if kept != described:
        raise KvassayError(f"golden pack: {MANIFEST.name} describes other cases than there are")
    return {"manifest.json": manifest, "check.mjs": PROGRAM.read_bytes(), **found}


def main() -> int:
    """Write the manifest where there is none."""
    if MANIFEST.exists():
        print(f"{MANIFEST.name}: exists, left as it is; a change needs another version")
        return 0
    for case in PACKED:
        if told := unlike_golden(case, steps(case)):
            print(f"{case}: {told} differ from the golden files; nothing written", file=sys.stderr)
            return 1
    manifest = {
        "pack": VERSION,
        **{"numeric_contract": 1, "page_format": 2, "dump_format": 1},
        "byte_order": "little",
        "cases": _cases()[1],
    }
    MANIFEST.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{MANIFEST.name}: written")
    return 0


def unlike_golden(case: str, arrays: Arrays) -> list[str]:
    """Which results of `steps` are not those of the golden files, which two backends agreed on."""
    spec, dump = spec_of(case), read_dump(read(case, "dump"))
    scores = np.frombuffer(read(case, "scores"), "<f4").reshape(arrays["scores"].shape)
    shape = (QUERIES, spec.query_heads, spec.head_dim)
    output = np.frombuffer(read(case, "outputs"), "<f4").reshape(shape)[-1]
    wanted: dict[str, Any] = {"scores": scores, "output": output}
    pages = [dump.page(0, i) for i in range(len(dump.layers[0].page_offsets))]
    for stream, name in STREAMS.items():
        if stream in pages[0].streams:
            wanted[name] = np.stack([page.raw(stream) for page in pages])
    return [
        name
        for name, array in wanted.items()
        if (arrays[name].shape, arrays[name].tobytes())
        != (array.shape, array.astype(arrays[name].dtype).tobytes())
    ]


def _cases() -> tuple[dict[str, bytes], dict[str, Any]]:
    """Content of every file, and what the manifest says of them."""
    found: dict[str, bytes] = {}
    described: dict[str, Any] = {}
    for case in PACKED:
        arrays = {**steps(case), **_stored(case)}
        entries = {}
        for name, array in arrays.items():
            plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            path = f"{case}/{name}.bin"
            found[path] = plain.tobytes()
            entries[name] = {
                "file": path,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "sha256": hashlib.sha256(found[path]).hexdigest(),
                "meaning": _meaning(name),
            }
        spec = spec_of(case)
        text = json.loads(spec.identity_text)
        described[case] = {"spec": text, "tokens": CASES[case][1], "arrays": entries}
    return found, described


def _stored(case: str) -> Arrays:
    dump = read(case, "dump")
    parts = read_dump(dump)
    pages = [parts.page(0, i).data for i in range(len(parts.layers[0].page_offsets))]
    stacked = np.stack([np.frombuffer(page, np.uint8) for page in pages])
    return {"pages": stacked, "dump": np.frombuffer(dump, np.uint8)}


def _meaning(name: str) -> str:
    part = name.partition(".")[2]
    known = (name, part, re.sub(r"\d+$", "", part))  # numbers of spans mean nothing by themselves
    return next(MEANINGS[one] for one in known if one in MEANINGS)


if __name__ == "__main__":
    sys.exit(main())
