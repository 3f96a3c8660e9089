"""A backend against the golden bytes: what it writes, what it computes, what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache
from kvassay.records import Record

from ..common.specs import MATH, record
from ..oracle import read_dump
from ..parity import locate
from .cases import inputs, read, spec_of


def compare(
    loaded: Backend, names: Sequence[str]
) -> Iterator[tuple[str, str, int, int, dict[str, Any] | None]]:
    """Case, check, mismatches, comparisons and the first mismatch: of a cache made from the inputs
    and of one restored."""
    for name in names:
        spec = spec_of(name)
        golden = read(name, "dump")
        with loaded.prepare(spec) as cache:
            for layer in range(spec.layers):
                k, v, _ = inputs(name, layer)
                cache.append(layer, k, v)
            yield name, "parity.mismatches", *_differences(name, spec, cache, golden)
        with loaded.restore(spec, golden) as cache:
            yield name, "parity.cross_read", *_differences(name, spec, cache, golden)


def measure(backend: str, variant: str, names: list[str]) -> list[Record]:
    """Mismatches with golden bytes, as records."""
    return [
        record(
            check,
            MATH,
            backend,
            variant,
            mismatches,
            "values",
            comparisons,
            subject=f"golden {name}",
            detail={"first": first},
        )
        for name, check, mismatches, comparisons, first in compare(
            kvassay.load(backend, variant), names
        )
    ]


def _differences(
    name: str, spec: kvassay.Spec, cache: Cache, golden: bytes
) -> tuple[int, int, dict[str, Any] | None]:
    """Values that differ, values compared, the first difference."""
    first: dict[str, Any] | None = None
    differing = compared = 0
    dump, truth = cache.dump(), read_dump(golden)
    for layer in range(spec.layers):
        pages = [truth.page(layer, i).data for i in range(len(truth.layers[layer].page_offsets))]
        found = cache.pages(layer)
        compared += sum(map(len, pages))
        for number, page in enumerate(pages):
            other = found[number] if number < len(found) else b""
            if page != other:
                differing += 1
                first = first or {"layer": layer, "page": number, **locate.in_page(page, other)}
        differing += abs(len(pages) - len(found))
    compared += len(golden)
    if dump != golden:
        differing += 1
        first = first or locate.in_dump(golden, dump)
    at = {"scores": 0, "outputs": 0}
    for layer in range(spec.layers):
        q = inputs(name, layer)[2]
        for what, axes, values in (
            ("scores", ("head", "token"), cache.scores(layer, q[-1])),
            ("outputs", ("query", "head", "channel"), cache.attend(layer, q)),
        ):
            stored = np.frombuffer(read(name, what), "<f4", values.size, 4 * at[what])
            expected = stored.astype(np.float32).reshape(values.shape)
            at[what] += values.size
            compared += values.size
            wrong = int(np.sum(expected.view(np.uint32) != values.view(np.uint32)))
            if wrong:
                differing += wrong
                place = locate.in_array(axes, expected, values)
                first = first or {"layer": layer, "stage": what, **place}
    return differing, compared, first
