"""The page format: tiles against the documented bytes, layout, header, what a reader refuses."""

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvassay import Identity, Spec
from kvassay.errors import IdentityError, PageError
from kvassay.page.check import check_page
from kvassay.page.layout import Header, PageLayout, crc, flip_code, read_codes, with_crc
from kvassay.page.tiles import (
    pack_keys,
    pack_tiles,
    pack_values,
    unpack_keys,
    unpack_tiles,
    unpack_values,
)
from kvassay.streams import codec_names
from kvassay_backends.reference import ReferenceBackend

KEYS = codec_names("keys")
VALUES = codec_names("values")


def make_page(**fields: Any) -> tuple[Spec, bytes]:
    """A spec of one page, and that page of random tokens."""
    shape: dict[str, Any] = {
        "layers": 1,
        "kv_heads": 2,
        "query_heads": 4,
        "head_dim": 48,
        "page_tokens": 16,
    }
    spec = Spec(**{**shape, **fields})
    rng = np.random.default_rng(7)
    k, v = rng.standard_normal(
        (2, spec.sinks + spec.window + spec.page_tokens, spec.kv_heads, spec.head_dim), np.float32
    )
    cache = ReferenceBackend().prepare(spec)
    cache.append(0, k, v)
    return spec, cache.pages(0)[0]


def check(spec: Spec, page: bytes, **differing: Any) -> None:
    check_page(
        replace(spec.layer(0), **differing),
        page,
        layer=0,
        token_start=spec.sinks,
        identity=spec.identity,
    )


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_tiles_of_a_ramp_have_every_code_in_order(bits: int) -> None:
    ramp = (np.arange(64) % (1 << bits)).astype(np.uint8)
    packed = pack_tiles(ramp, bits)
    assert packed.shape == (8 * bits,)
    assert (unpack_tiles(packed, bits) == ramp).all()


def test_tiles_have_the_documented_bytes() -> None:
    codes = np.random.default_rng(1).integers(0, 16, 64, np.uint8)
    four = [codes[j] | codes[j + 32] << 4 for j in range(32)]
    low = codes & np.uint8(3)
    two = [low[j] | low[j + 16] << 2 | low[j + 32] << 4 | low[j + 48] << 6 for j in range(16)]
    one = sum(int(codes[i] >> 2 & 1) << i for i in range(64)).to_bytes(8, "little")
    assert pack_tiles(codes, 4).tolist() == four
    assert pack_tiles(low, 2).tolist() == two
    assert pack_tiles(codes & np.uint8(7), 3).tobytes() == bytes(two) + one


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([n for n in KEYS if n != "fp16"]),
    st.sampled_from([16, 48, 64, 80, 112]),
    st.sampled_from([16, 48, 64]),
    st.integers(0, 2**32 - 1),
)
def test_packing_is_exact_and_dense(name: str, d: int, tokens: int, seed: int) -> None:
    splits = Spec(1, 1, 1, d, keys=name).layer(0).keys.splits(d)
    rng = np.random.default_rng(seed)
    spans = [rng.integers(0, 1 << bits, (2, tokens, n), np.uint8) for _, n, bits in splits]
    codes = np.concatenate(spans, axis=-1)
    size = sum(tokens * n * bits // 8 for _, n, bits in splits)
    for pack, unpack in ((pack_keys, unpack_keys), (pack_values, unpack_values)):
        packed = pack(codes, splits)
        assert packed.shape == (2, size)
        assert (unpack(packed, splits, tokens) == codes).all()


def test_key_order_is_blocks_of_tokens_then_channels() -> None:
    splits = ((0, 16, 2), (16, 16, 3))
    codes = np.zeros((32, 32), np.uint8)
    codes[17, 21] = 7  # block 1, lane 1; tile 1 of the high half, summand 1: code 5 of its tile
    packed = pack_keys(codes, splits)
    block = 4 * 16 + 4 * 24
    tile = packed[block + 64 + 24 : block + 64 + 48]
    assert unpack_tiles(tile, 3).nonzero()[0].tolist() == [5]
    assert np.count_nonzero(packed) == np.count_nonzero(tile) == 2


def test_value_order_ends_a_half_with_a_group_of_eight_channels() -> None:
    splits = ((0, 24, 2), (24, 24, 3))
    codes = np.zeros((16, 48), np.uint8)
    codes[13, 19] = 3  # channel 3 of the group of 8; token 13 = 8 + 4 + 1: tile 1, lane 8 + 3
    packed = pack_values(codes, splits)
    tile = packed[4 * 16 + 16 : 4 * 16 + 32]
    assert unpack_tiles(tile, 2).nonzero()[0].tolist() == [4 * 11 + 1]
    assert np.count_nonzero(packed) == 1


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("scale", ["u8", "u8log", "fp16"])
def test_layout_has_aligned_streams_and_its_parts_add_up(keys: str, scale: str) -> None:
    for values in VALUES:
        layer = Spec(1, 3, 3, 80, keys=keys, values=values, page_tokens=48, scale=scale).layer(0)
        layout = PageLayout(layer)
        assert layout.size % 64 == 0
        assert sum(layout.parts.values()) == layout.size
        assert all(stream.offset % 16 == 0 for stream in layout.streams.values())
        used = sum(s.size for s in layout.streams.values()) + sum(b - a for a, b in layout.gaps())
        assert used + 64 == layout.size


def test_layout_of_one_page_by_hand() -> None:
    spec = Spec(
        *(1, 2, 2, 64),
        keys="turbo:3+qjl",
        values="kivi:2",
        page_tokens=48,
        key_centre="page",
    )
    found = {s.name: (s.offset, s.size) for s in PageLayout(spec.layer(0)).streams.values()}
    assert found == {
        "key_codes": (64, 2304),
        "value_codes": (2368, 1536),
        "key_signs": (3904, 768),
        "key_scales": (4672, 96),
        "key_norms": (4768, 96),
        "value_steps": (4864, 384),
        "value_minima": (5248, 384),
        "key_mean": (5632, 256),
        "key_maxima": (5888, 8),
        "norm_maxima": (5904, 8),
    }
    assert PageLayout(spec.layer(0)).size == 5952


def test_header_has_the_documented_bytes() -> None:
    identity = Identity(model="m", tokenizer="t", runtime="r")
    spec, page = make_page(
        keys="turbo:2.5+qjl",
        values="kivi:3",
        scale="fp16",
        key_centre="page",
        value_centre="frozen",
        sinks=3,
        seed=2**63 + 5,
        rounds=1,
        identity=identity,
    )
    flags = 2 | 2 << 2 | 1 << 4 | 1 << 8
    assert page[:8] == b"KVPG" + struct.pack("<HH", 2, flags)
    hashes = identity.model_hash, identity.tokenizer_hash, identity.runtime_hash
    assert page[8:44] == struct.pack("<4QI", *hashes, 2**63 + 5, 3)
    assert page[44:48] == struct.pack("<I", crc(page))
    assert page[48:64] == struct.pack("<6H2BH", 0, 16, 2, 48, 48, 257, 0x25, 0x36, 0)
    header = Header.unpack(page)
    assert header.pack() == page[:64]
    assert header._replace(crc=0) == Header.of(spec.layer(0), 0, 3, identity)
    check(spec, page)


def test_fields_that_only_turbo_needs_are_zero_elsewhere() -> None:
    _, page = make_page(keys="kivi:2", values="fp16", scale="fp16", seed=9)
    assert page[32:40] == bytes(8)
    assert Header.unpack(page).flags & 3 == 0
    assert struct.unpack_from("<H", page, 58) == (0,)


@pytest.mark.parametrize(
    "fields",
    [
        {"keys": "turbo:3+qjl", "values": "turbo:2.5", "key_centre": "page"},
        {"keys": "kivi:2", "values": "kivi:3", "value_centre": "frozen"},
        {"keys": "fp16", "values": "turbo:2", "scale": "fp16"},
    ],
)
def test_every_flipped_bit_is_refused(fields: dict[str, Any]) -> None:
    spec, page = make_page(**fields, head_dim=16, kv_heads=1, query_heads=1)
    check(spec, page)
    for bit in range(8 * len(page)):
        bad = bytearray(page)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises((PageError, IdentityError)):
            check(spec, bytes(bad))


@pytest.mark.parametrize(
    ("differing", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"scale": "u8log"}, "scale kind"),
        ({"rounds": 1}, "transform"),
        ({"key_centre": "frozen"}, "key centring"),
        ({"page_tokens": 32}, "token count"),
        ({"head_dim": 64}, "head dim"),
        ({"kv_heads": 1}, "KV heads"),
        ({"sinks": 1}, None),
    ],
)
def test_pages_of_another_spec_are_refused_by_field(
    differing: dict[str, Any], field: str | None
) -> None:
    spec, page = make_page(keys="turbo:2", values="turbo:2")
    if field is None:
        check(spec, page, **differing)  # sinks are not a field of a page
        return
    with pytest.raises(IdentityError, match=field) as caught:
        check(spec, page, **differing)
    assert caught.value.field == field


def test_pages_of_another_place_or_identity_are_refused_by_field() -> None:
    spec, page = make_page(keys="turbo:2")
    for kind, identity in [
        ("model", Identity(model="x")),
        ("model", Identity(adapter="x")),
        ("tokenizer", Identity(template="x")),
        ("runtime", Identity(runtime="x")),
    ]:
        with pytest.raises(IdentityError) as caught:
            check_page(spec.layer(0), page, layer=0, token_start=0, identity=identity)
        assert caught.value.field == kind
    for kind, layer, start in [("layer", 1, 0), ("token start", 0, 16)]:
        with pytest.raises(PageError, match=kind):
            check_page(spec.layer(0), page, layer=layer, token_start=start)


@pytest.mark.parametrize(
    ("stream", "number"),
    [
        ("key_maxima", np.float32(-1)),
        ("key_maxima", np.float32("nan")),
        ("key_maxima", np.float32("inf")),
        ("key_maxima", np.float32(1e-40)),
        ("value_steps", np.float16(-1)),
        ("value_steps", np.float16("nan")),
        ("value_minima", np.float16("inf")),
        ("key_mean", np.float16("nan")),
    ],
)
def test_numbers_that_no_page_stores_are_refused_at_load(
    stream: str, number: np.float32 | np.float16
) -> None:
    spec, page = make_page(keys="turbo:2", values="kivi:2", key_centre="page")
    at = PageLayout(spec.layer(0))[stream].offset
    bad = with_crc(page[:at] + number.tobytes() + page[at + number.nbytes :])
    with pytest.raises(PageError, match=stream):
        check(spec, bad)


def test_wrong_lengths_and_nonzero_gaps_are_refused() -> None:
    spec, page = make_page(keys="turbo:2", values="turbo:2")
    for bad in (b"", page[:63], page[:-1], page + bytes(64)):
        with pytest.raises(PageError, match="bytes"):
            check(spec, bad)
    start, _ = PageLayout(spec.layer(0)).gaps()[-1]
    with pytest.raises(PageError, match="gap"):
        check(spec, with_crc(page[:start] + b"\1" + page[start + 1 :]))


def test_declared_counts_allocate_nothing() -> None:
    spec, page = make_page(keys="turbo:4", values="turbo:4")
    huge = page[:50] + struct.pack("<4H", 65520, 65535, 65520, 65520) + page[58:]
    with pytest.raises(IdentityError, match="KV heads is 65535"):
        check(spec, with_crc(huge))


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("stream", ["keys", "values"])
def test_flip_code_changes_one_code_and_keeps_the_page_sound(keys: str, stream: str) -> None:
    values = keys.removesuffix("+qjl")
    spec, page = make_page(keys=keys, values=values)
    flipped = flip_code(page, spec.layer(0), stream, head=1, token=5, channel=30)
    check(spec, flipped)
    before, after = (read_codes(p, spec.layer(0), stream) for p in (page, flipped))
    assert np.argwhere(before != after).tolist() == [[1, 5, 30]]
