"""Instruction sets of the native library: the one asked for runs, and gives the bits of scalar."""

import itertools
import re
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from native_tools import BUILT, add, make_queries, make_spec, make_tokens

import kvassay
from kvassay.errors import UnavailableError, UnknownBackendError
from kvassay_backends.emulated.provider import foreign_variants
from kvassay_backends.native import backend

VARIANTS = backend.variants()
FOREIGN = foreign_variants()
OWN = {name: state for name, state in VARIANTS.items() if name not in FOREIGN}
SIMD = [name for name, state in VARIANTS.items() if state.runs and name != "scalar"]
UNCENTRED = {"key_centre": "none", "value_centre": "none"}
CODECS = [
    ("fp16", "fp16"),
    ("turbo:3.5", "turbo:3"),
    ("turbo:2.5", "turbo:3.5"),
    ("turbo:2+qjl", "turbo:4"),
    ("kivi:2", "kivi:4"),
]


def outputs(variant: str, spec: kvassay.Spec, threads: int) -> tuple[bytes, bytes, bytes, Any]:
    """A dump, the outputs of three queries and the scores of one, and which variants executed."""
    rows = make_tokens(spec, 203)
    with kvassay.load("native", variant).prepare(spec, threads) as cache:
        add(cache, rows)
        queries = make_queries(spec, 3)
        attended, scores = cache.attend(0, queries), cache.scores(0, queries[0])
        assert np.isfinite(attended).all()
        return cache.dump(), attended.tobytes(), scores.tobytes(), cache.counters.variants_ran


def test_no_variant_is_broken() -> None:
    assert {state.status for state in OWN.values()} <= {"ready", "unsupported-cpu"}
    assert list(OWN)[-1] == "scalar"
    assert list(VARIANTS) == [*OWN, *FOREIGN]


def test_a_variant_that_cannot_run_says_what_is_missing() -> None:
    missing = [name for name, state in OWN.items() if not state.runs]
    for name in missing:
        assert re.search(r"this CPU lacks \w+", VARIANTS[name].reason)
        with pytest.raises(UnavailableError, match="this CPU lacks"):
            kvassay.load("native", name)


def test_scalar_can_be_forced() -> None:
    assert outputs("scalar", make_spec(), 1)[3] == ("scalar",)


def test_the_best_is_the_default() -> None:
    assert kvassay.load("native").variant == next(n for n, s in VARIANTS.items() if s.runs)


def test_a_variant_that_does_not_exist() -> None:
    with pytest.raises(UnknownBackendError, match=r"no variant 'scaler'.*scalar"):
        kvassay.load("native", "scaler")


@pytest.mark.parametrize("variant", SIMD)
@pytest.mark.parametrize(("keys", "values"), CODECS)
def test_the_variant_asked_for_runs_and_gives_the_bits_of_scalar(
    variant: str, keys: str, values: str
) -> None:
    shapes = [(64, 3, 9, 64), (80, 2, 14, 16), (112, 1, 8, 48), (16, 1, 1, 16)]
    for (head_dim, kv_heads, query_heads, page), threads in itertools.product(shapes, (1, 2)):
        shape = {"kv_heads": kv_heads, "query_heads": query_heads, "head_dim": head_dim}
        coded = {"keys": keys, "values": values, "page_tokens": page, "window": 7, "sinks": 2}
        spec = make_spec(**shape, **coded, **({} if keys != "fp16" else UNCENTRED))
        *truth, by_scalar = outputs("scalar", spec, threads)
        *found, by_variant = outputs(variant, spec, threads)
        assert (by_scalar, by_variant) == (("scalar",), (variant,))
        assert found == truth


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump to disassemble with")
def test_no_multiply_is_fused_with_an_add() -> None:
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(BUILT)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert listing.count("\n") > 10_000
    assert re.findall(r"\bvf\w*m(?:add|sub)\w*|\bfml[as]\b|\bfn?m(?:add|sub)\b", listing) == []
