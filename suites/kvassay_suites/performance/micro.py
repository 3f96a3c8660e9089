"""Single calls under pytest-benchmark: `nox -s micro`, or, with that plugin installed,

    pytest suites/kvassay_suites/performance/micro.py -k "native/avx2 and turbo"

For work on a kernel: quick, on one machine, with the plugin's own statistics and comparisons
(`--benchmark-save`, `--benchmark-compare`). Inputs and shapes are those of the performance suite,
whose records are what the gate judges; a call whose output is wrong fails and gives no number.
pytest does not find this file by itself: without the plugin there is nothing to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

import kvassay
from kvassay.presets import PRESETS
from kvassay.protocol import Backend, Cache
from kvassay.registry import backends

from .truth import check
from .work import SHORT, Owner, Shape, filled, tokens_of

SHAPE: Final = Shape(2, 8, 128)
TOKENS: Final = 1028
TARGETS: Final = [f"{name}/{v}" for name, variants in backends().items() for v in variants]
_PAGE: Final = 64


@pytest.fixture(scope="module", params=TARGETS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """A variant that runs here without an emulator, under which times mean nothing."""
    name, _, variant = str(request.param).partition("/")
    state = backends()[name][variant]
    if state.status != "ready":
        pytest.skip(f"{request.param}: {state.status}: {state.reason}")
    return kvassay.load(name, variant)


def _attend(cache: Cache, short: Cache) -> Callable[[], object]:
    return partial(cache.attend, 0, tokens_of(SHAPE, TOKENS)[2][0])


def _scores(cache: Cache, short: Cache) -> Callable[[], object]:
    return partial(cache.scores, 0, tokens_of(SHAPE, TOKENS)[2][0])


def _short_attend(cache: Cache, short: Cache) -> Callable[[], object]:
    return partial(short.attend, 0, tokens_of(SHAPE, TOKENS)[2][0])


def _append_page(cache: Cache, short: Cache) -> Callable[[], object]:
    """A page's tokens one by one into a cache that is emptied first, so that it stays as long."""
    k, v, _ = tokens_of(SHAPE, TOKENS)

    def append() -> None:
        short.reset()
        for token in range(_PAGE):
            short.append(0, k[token : token + 1], v[token : token + 1])

    return append


@pytest.mark.benchmark(timer=time.thread_time)
@pytest.mark.parametrize("operation", [_attend, _scores, _short_attend, _append_page])
@pytest.mark.parametrize("preset", PRESETS)
def test_call(
    benchmark: Any, backend: Backend, preset: str, operation: Callable[..., Callable[[], object]]
) -> None:
    """Time one operation in the thread's own processor time, and hold what it computed."""
    k, v, q = tokens_of(SHAPE, TOKENS)
    whose = Owner("", backend.variant, TOKENS, SHAPE, backend.build_id)
    with (
        filled(backend, SHAPE.spec(preset), k, v) as cache,
        filled(backend, SHAPE.spec(preset, short=True), k[:SHORT], v[:SHORT]) as short,
    ):
        benchmark(operation(cache, short))
        assert check(backend, whose, preset, cache.attend(0, q[0])).wrong == ""
        benchmark.extra_info["build_id"] = backend.build_id
