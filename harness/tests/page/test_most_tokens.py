"""The most tokens that a layer may hold: positions in pages have 32 bits, in every backend."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from bad_input_tools import BEST, refuse, rows

import kvassay
from kvassay import Backend, Spec
from kvassay.errors import InputError, PageError
from kvassay.page.dump import LayerDump, pack_dump, parse_dump
from kvassay.page.layout import with_crc
from kvassay.spec import MAX_TOKENS
from kvassay_suites.oracle import OracleError, check_dump

#: Nearly everything is retired, so that a small dump is of a long sequence.
SPEC = Spec(1, 1, 1, 32, keys="turbo:2", values="turbo:2", page_tokens=16, span=16)


@pytest.fixture(params=BEST)
def backend(request: pytest.FixtureRequest) -> Backend:
    return kvassay.load(*request.param)


def dump_of(length: int) -> bytes:
    """A dump that says so many tokens: what is live of 32 of them, under later positions."""
    with kvassay.load("reference").prepare(SPEC) as made:
        made.append(0, rows(32 + length % 16, 1, 1), rows(32 + length % 16, 1, 2))
        (layer,) = parse_dump(SPEC, made.dump())
    return pack_dump(SPEC, [moved(layer, length)])


def moved(layer: LayerDump, length: int) -> LayerDump:
    later = (length - layer.length) // 16
    pages = []
    for number, page in enumerate(layer.pages, layer.first_page + later):
        start = struct.pack("<I", 16 * number % 2**32)
        pages.append(with_crc(page[:40] + start + page[44:]))
    return replace(layer, length=length, first_page=layer.first_page + later, pages=pages)


def test_up_to_the_last_token_and_not_beyond(backend: Backend) -> None:
    with backend.restore(SPEC, dump_of(MAX_TOKENS - 15)) as cache:
        before = cache.dump()
        refuse(InputError, "append:", cache.append, 0, rows(16, 1), rows(16, 1))
        assert cache.dump() == before
        cache.append(0, rows(15, 1, 3), rows(15, 1, 4))
        assert cache.lengths == (MAX_TOKENS,)
        assert np.isfinite(cache.attend(0, rows(1, 1, 5)[0])).all()
        refuse(InputError, "append", cache.append, 0, rows(1, 1), rows(1, 1))
        with backend.restore(SPEC, cache.dump()) as again:
            assert again.lengths == (MAX_TOKENS,)


@pytest.mark.parametrize("length", [MAX_TOKENS + 1, 2**32 + 9])
def test_dumps_of_more_are_damage(backend: Backend, length: int) -> None:
    refuse(PageError, "tokens", backend.restore, SPEC, dump_of(length))


def test_the_independent_reader_agrees() -> None:
    check_dump(dump_of(MAX_TOKENS), SPEC.identity_text)
    with pytest.raises(OracleError, match="a layer record of 4294967305 tokens"):
        check_dump(dump_of(2**32 + 9), SPEC.identity_text)
