"""Stage "one layer": attention over a cache of fixed tensors against exact attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvassay.presets import preset as make_preset
from kvassay.records import Record
from kvassay.suite import Target
from kvassay_suites.common.specs import ONE_LAYER

from .fidelity import fidelity_records, layer_fidelity, sampled_positions
from .fixture import HEAD_DIM, SHAPES, one_layer
from .measured import Origin, load

TOKENS: Final = 512
#: Odd, so that sampled queries meet every phase of a page filling up.
EVERY: Final = 7


def measure(backend: str, variant: str, preset: str, shapes: Sequence[str]) -> list[Record]:
    """Fidelity over the fixture in these shapes."""
    target = Target(backend, variant)
    loaded = load(target)
    origin = Origin(target, preset, ONE_LAYER)
    records: list[Record] = []
    for shape in shapes:
        query_heads, kv_heads = SHAPES[shape]
        spec = make_preset(
            preset, layers=1, kv_heads=kv_heads, query_heads=query_heads, head_dim=HEAD_DIM
        )
        positions = sampled_positions(spec.layer(0), TOKENS, EVERY)
        with loaded.prepare(spec) as cache:
            fidelity = layer_fidelity(cache, 0, one_layer(shape, TOKENS), positions)
        names = ("one_layer", "one_layer_output")
        records += fidelity_records(origin, [fidelity], names, shape, tokens=TOKENS)
    return records
