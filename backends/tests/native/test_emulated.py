"""Variants of another machine under an emulator: bits, errors, and why they do not run."""

from __future__ import annotations

import gc
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import recipe
from native_tools import add, make_queries, make_spec, make_tokens

import kvassay
from kvassay.errors import (
    IdentityError,
    InputError,
    NonFiniteError,
    StateError,
    TruncateError,
    UnavailableError,
    UnsupportedError,
)
from kvassay.protocol import Backend
from kvassay_backends.emulated import build_info, provider
from kvassay_backends.emulated.backend import EmulatedBackend
from kvassay_backends.emulated.link import Command, Link
from kvassay_backends.native import backend as native
from kvassay_backends.native.probe import exercise

STATES = {} if platform.machine() == "aarch64" else provider.foreign_variants()
RUNNING = [name for name, state in STATES.items() if state.runs]
WHY_NOT = "; ".join(f"{name}: {state.status}, {state.reason}" for name, state in STATES.items())
emulated = pytest.mark.skipif(not RUNNING, reason=f"no emulated variant runs here ({WHY_NOT})")


@pytest.fixture
def backend() -> Backend:
    return kvassay.load("native", RUNNING[0])


@pytest.fixture
def link() -> Iterator[Link]:
    record = build_info.build_record()
    assert record is not None
    made = Link((provider.EMULATOR, str(build_info.LIBRARY_DIR / record["library"])))
    yield made
    made.close()


def test_the_variants_are_those_of_the_build_recipe() -> None:
    for processor, names in provider.VARIANTS.items():
        assert ["scalar", *reversed(names)] == [*recipe.ISAS[processor]]


def test_every_known_variant_is_listed() -> None:
    names = {"scalar", *(name for names in provider.VARIANTS.values() for name in names)}
    assert set(native.variants()) == names


def test_none_is_broken() -> None:
    expected = {"emulated", "not-built", "missing-package", "unsupported-cpu"}
    assert {state.status for state in STATES.values()} <= expected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ARM is not foreign here")
def test_without_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for name in provider.VARIANTS["aarch64"]:
        state = provider.foreign_variants()[name]
        assert not state.runs
        assert state.reason == "qemu-aarch64-static missing: apt install qemu-user-static"
        with pytest.raises(UnavailableError, match="apt install qemu-user-static"):
            kvassay.load("native", name)


@emulated
def test_a_server_of_other_sources_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_info, "source_digest", lambda folders: "another")
    state = provider.foreign_variants()[RUNNING[0]]
    assert (state.status, state.runs) == ("not-built", False)
    assert "built from other sources; run: python backends/build/cross.py emulated" in state.reason


@emulated
def test_a_life_as_in_process(backend: Backend) -> None:
    """Append, fork, truncate, dump, restore and reset have the bytes of the reference."""
    spec = make_spec(layers=2, window=7, sinks=2)
    rows = make_tokens(spec, 90)
    states = []
    for one in (backend, kvassay.load("reference")):
        with one.prepare(spec, threads=2) as cache:
            add(cache, rows)
            seen = [cache.dump(), *cache.pages(1)]
            with cache.fork() as copy:
                copy.truncate(cache.length - 1)
                add(copy, rows[:, :5])
                seen.append(copy.dump())
            with one.restore(spec, seen[0]) as restored:
                seen.append(restored.attend(1, make_queries(spec, 2)).tobytes())
                seen.append(restored.scores(0, make_queries(spec, 1)[0]).tobytes())
            assert cache.lengths == (90, 90)
            cache.reset()
            seen.append(cache.dump())
        states.append(seen)
    assert states[0] == states[1]


@emulated
def test_what_the_library_refuses_has_the_errors_of_kvassay(backend: Backend) -> None:
    spec = make_spec(window=4, sinks=0)
    rows = make_tokens(spec, 40)
    with backend.prepare(spec) as cache:
        with pytest.raises(StateError):
            cache.attend(0, make_queries(spec, 1))
        add(cache, rows)
        with pytest.raises(TruncateError) as refused:
            cache.truncate(20)
        assert refused.value.allowed
        rows[0, 3, 1, 5] = np.nan
        with pytest.raises(NonFiniteError) as found:
            cache.append(0, rows[0], rows[1])
        assert (found.value.token, found.value.head, found.value.channel) == (3, 1, 5)
        with pytest.raises(IdentityError) as other:
            backend.restore(replace(spec, seed=9), cache.dump())
        assert other.value.field == "seed"
    with pytest.raises(StateError, match="closed"):
        cache.dump()
    with pytest.raises(InputError, match="threads"):
        backend.prepare(spec, threads=0)


@emulated
def test_a_spec_that_it_does_not_execute(link: Link) -> None:
    with pytest.raises(UnsupportedError, match="kv_heads"):
        link.call(Command.SUPPORTS, bytes(40))


@emulated
def test_a_cpu_without_the_dot_product() -> None:
    """Dispatch asks the processor: Cortex-A53 is ARMv8.0."""
    record = build_info.build_record()
    assert record is not None
    server = str(build_info.LIBRARY_DIR / record["library"])
    link = Link((provider.EMULATOR, "-cpu", "cortex-a53", server))
    try:
        for name in ("scalar", "neon"):
            link.call(Command.RUNS, count=link.variants.index(name))
            assert exercise(EmulatedBackend("old", link, name)) == ""
        lacks = "variant neondot cannot run here: this CPU lacks asimddp"
        with pytest.raises(UnavailableError, match=lacks):
            link.call(Command.RUNS, count=link.variants.index("neondot"))
        with pytest.raises(UnavailableError, match=lacks):
            EmulatedBackend("old", link, "neondot").prepare(make_spec())
    finally:
        link.close()


@emulated
def test_a_cache_that_nobody_holds_is_closed(backend: Backend) -> None:
    spec = make_spec()
    first = backend.prepare(spec)
    number = first._number  # type: ignore[attr-defined]
    del first
    gc.collect()
    backend.supports(spec)
    with backend.prepare(spec) as second:
        assert second._number == number  # type: ignore[attr-defined]


@emulated
def test_a_server_that_dies_is_an_error(link: Link) -> None:
    link._server.kill()
    with pytest.raises(UnavailableError, match=r"kvassay-serve-aarch64, at RUNS: .* status -9"):
        link.call(Command.RUNS)


@emulated
@pytest.mark.parametrize(
    ("command", "data"),
    [
        (Command.SUPPORTS, b"short"),
        (Command.CREATE, b""),
        (Command.APPEND, b""),
        (Command.HELLO, b"more"),
    ],
)
def test_a_request_that_is_none_ends_the_server(link: Link, command: Command, data: bytes) -> None:
    with pytest.raises(UnavailableError, match=r"status 2: serve: command .*: not what it takes"):
        link.call(command, data)


@emulated
def test_garbage_ends_the_server(link: Link) -> None:
    done = subprocess.run(
        [provider.EMULATOR, str(link.path)], input=b"x" * 64, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert re.search(rb"no request", done.stderr)
