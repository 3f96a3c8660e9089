"""What all suites share: the grid's axes, records of a target, and the choice of specs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import kvassay
from kvassay.records import Record
from kvassay.streams import codec_names

HEAD_DIMS: Final = (64, 80, 96, 112, 128, 160, 192, 256)
KEY_CODECS: Final = codec_names("keys")
VALUE_CODECS: Final = codec_names("values")
#: Pairs in which every codec of either stream occurs, and fp16 beside each family.
CODEC_PAIRS: Final = (
    *((name, VALUE_CODECS[i % len(VALUE_CODECS)]) for i, name in enumerate(KEY_CODECS)),
    *(("fp16", "turbo:3"), ("fp16", "kivi:4"), ("turbo:4", "fp16"), ("kivi:4", "fp16")),
    *(("turbo:3", "kivi:4"), ("kivi:2", "kivi:2")),
)
#: Stages of rules.toml that these suites speak for.
MATH, ONE_LAYER, SIMD = "math", "one layer", "SIMD"
SCALAR_WASM, SIMD128 = "scalar WASM", "SIMD128"
#: How the instruction sets of native libraries are named.
SIMD_VARIANTS: Final = ("avx", "neon", "sse", "sve")
#: How the variants of a WebAssembly module are named that uses vectors.
WASM_VECTORS: Final = ("simd", "relaxed")


def instruction_stage(backend: str, variant: str) -> str:
    """The stage that the records of an instruction set speak for."""
    loaded = kvassay.load(backend, variant)
    if getattr(loaded, "evidence", {}).get("linear_memory"):
        return SIMD128 if variant.startswith(WASM_VECTORS) else SCALAR_WASM
    return SIMD if variant.startswith(SIMD_VARIANTS) else ONE_LAYER


def record(
    check: str,
    stage: str,
    backend: str,
    variant: str,
    value: float,
    unit: str,
    comparisons: int,
    *,
    subject: str = "",
    preset: str = "",
    detail: Mapping[str, Any] | None = None,
    reproduce: str = "",
) -> Record:
    """A Record; its suite is the part of `check` before the point."""
    return Record(
        suite=check.partition(".")[0],
        check=check,
        stage=stage,
        backend=backend,
        variant=variant,
        value=float(value),
        unit=unit,
        comparisons=int(comparisons),
        preset=preset,
        subject=subject,
        detail=dict(detail or {}),
        reproduce=reproduce,
    )


def make_spec(**fields: Any) -> kvassay.Spec:
    """A Spec; centring that has no meaning for an fp16 stream is dropped."""
    for stream, centre in (("keys", "key_centre"), ("values", "value_centre")):
        if fields.get(stream, "fp16") == "fp16":
            fields.pop(centre, None)
    return kvassay.Spec(**{"layers": 1, **fields})


def describe(spec: kvassay.Spec) -> str:
    """A short name of a spec for people: codecs, shape, page, and what differs from plain."""
    parts = [
        f"{spec.keys}/{spec.values}",
        f"d{spec.head_dim}",
        f"{spec.query_heads}q{spec.kv_heads}kv",
        f"p{spec.page_tokens}",
    ]
    for name, short, plain in (
        ("layers", "layers", 1),
        ("window", "w", 0),
        ("sinks", "s", 0),
        ("span", "span", None),
        ("scale", "", "u8"),
        ("rounds", "rounds", 2),
        ("seed", "seed", 0),
        ("softmax_scale", "scale", None),
    ):
        value = getattr(spec, name)
        if value != plain:
            parts.append(f"{short}{value}")
    if (spec.key_centre, spec.value_centre) != ("none", "none"):
        parts.append(f"{spec.key_centre}+{spec.value_centre}")
    return " ".join(parts)


def worst(records: Iterable[Record]) -> float:
    """The largest value, NaN first."""
    values = [item.value for item in records]
    return max(values, key=lambda value: float("inf") if value != value else value)
