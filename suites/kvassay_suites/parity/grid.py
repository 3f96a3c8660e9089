"""Which cases each depth runs: pairwise by default, product grids in full."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Final

import kvassay
from kvassay.suite import Depth

from ..common.inputs import KINDS
from ..common.pairwise import pairwise
from ..common.specs import HEAD_DIMS, KEY_CODECS, VALUE_CODECS, make_spec
from .plans import CROSS, ONE_PAGE, PLANS

Cases = list[dict[str, Any]]
#: Keeps the cases that a target executes.
Supported = Callable[[Cases], Cases]

HEADS: Final = ((9, 3), (8, 8), (4, 1), (32, 8), (5, 1), (6, 2))
FACTORS: Final[Mapping[str, tuple[Any, ...]]] = {
    "keys": KEY_CODECS,
    "values": VALUE_CODECS,
    "head_dim": HEAD_DIMS,
    "heads": HEADS,
    "page_tokens": (16, 32, 48, 64, 128),
    "scale": ("u8", "u8log", "fp16"),
    "key_centre": ("none", "frozen", "page"),
    "value_centre": ("none", "frozen"),
    "rounds": (2, 1),
    "sinks": (0, 2, 4),
    "window": (0, 16, 40, 128),
    "span": (None, 33, 200),
    "seed": (0, 1, 2**64 - 1),
    "softmax_scale": (None, 0.3),
    "override": ("none", "fp16 first", "mixed layers"),
    "inputs": KINDS,
    "threads": (1, 2, 3),
    "plan": tuple(name for name in PLANS if name != ONE_PAGE),
}
QUICK_CASES: Final = 12
QUICK_PAGES: Final = 4
#: How often the full grid meets every pair of codecs at every head dim.
ROUNDS: Final = 2
#: Layers that differ from the rest of the cache.
OVERRIDES: Final[Mapping[str, dict[int, dict[str, Any]]]] = {
    "none": {},
    "fp16 first": {0: {"keys": "fp16", "values": "fp16"}},
    "mixed layers": {1: {"keys": "kivi:4", "values": "turbo:2", "page_tokens": 32, "window": 7}},
}


def make_case(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The case of one row of the grid."""
    fields = dict(row)
    query_heads, kv_heads = fields.pop("heads")
    inputs, threads, plan = (fields.pop(name) for name in ("inputs", "threads", "plan"))
    overrides = OVERRIDES[fields.pop("override")]
    spec = make_spec(
        layers=2 if overrides else 1,
        query_heads=query_heads,
        kv_heads=kv_heads,
        layer_overrides=overrides,
        **fields,
    )
    return case_of(spec, inputs, threads, plan, number)


def case_of(
    spec: kvassay.Spec, inputs: str, threads: int, plan: str, number: int
) -> dict[str, Any]:
    """A case as plain data."""
    return {
        "spec": spec.to_dict(),
        "inputs": inputs,
        "seed": number,
        "threads": threads,
        "plan": plan,
        "ops": PLANS[plan](spec),
    }


@lru_cache(maxsize=1)
def pairwise_cases() -> tuple[dict[str, Any], ...]:
    """Every pair of values of any two factors meets in one of these."""
    return tuple(make_case(row, number) for number, row in enumerate(pairwise(FACTORS)))


def full_cases() -> Iterator[dict[str, Any]]:
    """Every pair of codecs at every head dim; the other factors in turn or drawn for each."""
    draw = random.Random(0)
    others = [n for n in FACTORS if n not in ("keys", "values", "head_dim", "plan")]
    plans = FACTORS["plan"]
    grid = product(range(ROUNDS), KEY_CODECS, VALUE_CODECS, HEAD_DIMS)
    for number, (_, keys, values, head_dim) in enumerate(grid):
        row = {name: draw.choice(FACTORS[name]) for name in others}
        row |= {"keys": keys, "values": values, "head_dim": head_dim}
        yield make_case({**row, "plan": plans[number % len(plans)]}, 1000 + number)


def cases(depth: Depth, supported: Supported = list) -> list[dict[str, Any]]:
    """The cases of a depth that a target supports; a quick look takes cheap ones of them."""
    if depth == "full":
        return supported([*pairwise_cases(), *full_cases()])
    found = supported(list(pairwise_cases()))
    if depth == "default":
        return found
    cheap = sorted(found, key=_cost)[: 4 * QUICK_CASES]
    return _some(sorted(cheap, key=lambda case: int(case["seed"])), QUICK_CASES)


def _some(found: Cases, number: int) -> Cases:
    """About so many of them, evenly spread."""
    return found[:: max(1, -(-len(found) // number))]


def _cost(case: Mapping[str, Any]) -> int:
    """Work of a case, in some unit: query heads times channels times tokens at each check."""
    tokens = work = 0
    for name, *arguments in case["ops"]:
        tokens += arguments[0] if name == "append" else 0
        work += tokens * sum(arguments[0]) if name == "check" else 0
    return work * int(case["spec"]["query_heads"]) * int(case["spec"]["head_dim"])


def page_cases(depth: Depth, supported: Supported = list) -> list[dict[str, Any]]:
    """One sealed page and nothing else: the arithmetic of every codec, on inputs of every kind."""
    pairs = [(keys, VALUE_CODECS[i % len(VALUE_CODECS)]) for i, keys in enumerate(KEY_CODECS)]
    found = [
        case_of(
            make_spec(
                kv_heads=2,
                query_heads=4,
                keys=keys,
                values=values,
                head_dim=HEAD_DIMS[i % len(HEAD_DIMS)],
                page_tokens=(16, 48)[i % 2],
                key_centre=("none", "page", "frozen")[i % 3],
                value_centre=("none", "frozen")[i % 2],
                scale=("u8", "u8log", "fp16")[i // 2 % 3],
                seed=i,
            ),
            "mixed",
            1,
            ONE_PAGE,
            i,
        )
        for i, (keys, values) in enumerate(pairs)
    ]
    found = supported(found)
    return _some(found, QUICK_PAGES) if depth == "quick" else found


def preset_cases(name: str, depth: Depth) -> list[dict[str, Any]]:
    """A preset as it ships, on two shapes of real models."""
    shapes = ((9, 3, 64), (32, 8, 128))
    plans = (
        ("one then rest",) if depth == "quick" else ("one then rest", "lifecycle", CROSS, "long")
    )
    return [
        case_of(
            kvassay.preset(name, layers=1, query_heads=q, kv_heads=kv, head_dim=d),
            "outliers",
            2,
            plan,
            d,
        )
        for q, kv, d in shapes[: 1 if depth == "quick" else 2]
        for plan in plans
    ]
