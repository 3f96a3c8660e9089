"""Bad dumps to every backend: cut, flipped, of another spec, from nowhere; nothing is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_input_tools import PARAMETERS, SPEC, VARIANTS, filled, fingerprint, refuse, rows

import kvassay
from kvassay import Backend, Cache, Spec
from kvassay.errors import IdentityError, InputError, PageError, WriteError


@pytest.fixture(params=PARAMETERS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return kvassay.load(*request.param)


@pytest.fixture
def cache(backend: Backend) -> Iterator[Cache]:
    """A cache of HELD tokens, whose state and answers a test may not change."""
    with filled(backend, SPEC) as made:
        before = fingerprint(made)
        yield made
        assert fingerprint(made) == before


SMALL = Spec(
    1, 1, 1, 32, keys="turbo:2", values="turbo:2", page_tokens=16, sinks=1, value_centre="frozen"
)


def small_dump(backend: Backend) -> bytes:
    with backend.prepare(SMALL) as cache:
        cache.append(0, rows(20, 1, 1), rows(20, 1, 2))
        return cache.dump()


def test_cut_dumps_are_refused_at_every_length(backend: Backend, tmp_path: Path) -> None:
    data = small_dump(backend)
    for size in range(len(data)):
        refuse(PageError, f"dump {size} bytes", backend.restore, SMALL, data[:size])
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) // 2])
    refuse(PageError, f"{len(data) // 2} bytes {len(data)}", backend.restore, SMALL, path)
    refuse(PageError, "dump bytes", backend.restore, SMALL, data + bytes(64))


def test_every_flipped_bit_of_a_dump_is_refused(backend: Backend) -> None:
    # A linear memory for each costs a millisecond: there the other bits are a long test.
    refuse_flips(backend, 13 if backend.name == "wasm" else 1)


@pytest.mark.long
@pytest.mark.parametrize("variant", [variant for name, variant in VARIANTS if name == "wasm"])
def test_every_flipped_bit_of_a_dump_is_refused_in_linear_memory(variant: str) -> None:
    refuse_flips(kvassay.load("wasm", variant), 1)


def refuse_flips(backend: Backend, step: int) -> None:
    data = small_dump(backend)
    for at in range(0, 8 * len(data), step):
        bad = bytearray(data)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(PageError, match="dump"):
            backend.restore(SMALL, bytes(bad))


def test_dumps_of_another_spec_name_the_field(backend: Backend) -> None:
    data = small_dump(backend)
    for changes, field in (
        ({"seed": 1}, "seed"),
        ({"keys": "turbo:3"}, "keys"),
        ({"sinks": 2}, "sinks"),
        ({"head_dim": 64, "softmax_scale": SMALL.effective_softmax_scale}, "head_dim"),
        ({"identity": {"model": "m"}}, "identity"),
    ):
        other = Spec.from_dict({**SMALL.to_dict(), **changes})
        error = refuse(IdentityError, f"{field} this cache has", backend.restore, other, data)
        assert isinstance(error, IdentityError)
        assert error.field == field


def test_sources_that_are_no_dump(backend: Backend, tmp_path: Path) -> None:
    missing = tmp_path / "missing.kvdm"
    refuse(
        PageError,
        f"cannot read dump {missing} No such file",
        lambda: backend.restore(SMALL, missing),
    )
    refuse(PageError, f"cannot read dump {tmp_path}", backend.restore, SMALL, str(tmp_path))
    sources: tuple[Any, ...] = (5, None, ["x"], "a\0b", np.zeros(3))
    for source in sources:
        refuse(InputError, "restore: path", backend.restore, SMALL, source)


def test_dumps_that_cannot_be_written(cache: Cache, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"kept")
    for path in (tmp_path / "no" / "folder", file / "below", tmp_path, tmp_path / ("x" * 300)):
        refuse(WriteError, f"cannot write dump {path} folder that exists", cache.dump, path)
    paths: tuple[Any, ...] = (5, "a\0b", b"bytes")
    for path in paths:
        refuse(InputError, "dump: path", cache.dump, path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"kept"
