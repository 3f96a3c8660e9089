"""Life cycle of the reference cache: state depends on the tokens alone, or it is refused."""

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kvassay import Identity, Spec
from kvassay.errors import (
    IdentityError,
    InputError,
    NonFiniteError,
    PageError,
    SpanError,
    StateError,
    TruncateError,
)
from kvassay.protocol import BYTE_PARTS, Cache
from kvassay_backends.reference import ReferenceBackend

BACKEND = ReferenceBackend()
F32 = NDArray[np.float32]
SHAPE: dict[str, Any] = {
    "layers": 1,
    "kv_heads": 2,
    "query_heads": 4,
    "head_dim": 32,
    "page_tokens": 16,
}
CODECS: list[dict[str, Any]] = [
    {},
    {"keys": "turbo:3.5", "values": "turbo:2.5", "key_centre": "page", "value_centre": "frozen"},
    {"keys": "turbo:2+qjl", "values": "kivi:2", "key_centre": "frozen", "scale": "u8log"},
    {"keys": "kivi:4", "values": "turbo:4", "key_centre": "frozen", "scale": "fp16"},
]
codecs = st.sampled_from(CODECS)
policies = st.fixed_dictionaries(
    {
        "window": st.sampled_from([0, 3, 16]),
        "sinks": st.sampled_from([0, 2]),
        "span": st.sampled_from([None, 1, 9, 40]),
    }
)


def spec_of(*parts: dict[str, Any]) -> Spec:
    merged = dict(SHAPE)
    for part in parts:
        merged |= part
    return Spec(**merged)


def tokens(spec: Spec, n: int, seed: int = 0) -> F32:
    shape = (2, n, spec.kv_heads, spec.head_dim)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def queries(spec: Spec, n: int = 1, seed: int = 1) -> F32:
    shape = (n, spec.query_heads, spec.head_dim)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def filled(spec: Spec, data: F32, chunks: Sequence[int] = (), cache: Cache | None = None) -> Cache:
    """A cache after appending data (2, n, heads, d) to every layer in chunks of these sizes."""
    cache = cache or BACKEND.prepare(spec)
    start = 0
    for size in chunks or [data.shape[1]]:
        for layer in range(spec.layers):
            cache.append(layer, data[0, start : start + size], data[1, start : start + size])
        start += size
    return cache


def walked(value: Any) -> int:
    """Bytes of every distinct array and bytes object that an object holds."""
    seen: set[int] = set()
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            total += item.nbytes
        elif isinstance(item, bytes):
            total += len(item)
        elif isinstance(item, (list, tuple)):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
        elif type(item).__module__.startswith("kvassay_backends"):
            stack += vars(item).values()
    return total


@settings(max_examples=20, deadline=None)
@given(codecs, policies, st.sampled_from([17, 40, 77]), st.data())
def test_state_and_outputs_do_not_depend_on_chunking(
    codec: dict[str, Any], policy: dict[str, Any], n: int, data: st.DataObject
) -> None:
    spec = spec_of(codec, policy)
    x, q = tokens(spec, n), queries(spec)
    whole = filled(spec, x)
    chunks, left = [], n
    while left:
        chunks.append(data.draw(st.integers(1, left)))
        left -= chunks[-1]
    parts = filled(spec, x, chunks)
    assert parts.pages(0) == whole.pages(0)
    assert parts.dump() == whole.dump()
    assert parts.attend(0, q).tobytes() == whole.attend(0, q).tobytes()
    assert parts.scores(0, q[0]).tobytes() == whole.scores(0, q[0]).tobytes()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("chunks", [(16, 1), (1,) * 17, (3, 5, 9)])
def test_seventeen_tokens_in_any_chunks(codec: dict[str, Any], chunks: tuple[int, ...]) -> None:
    spec = spec_of(codec)
    x = tokens(spec, 17)
    whole, parts = filled(spec, x), filled(spec, x, chunks)
    assert len(whole.pages(0)) == 1
    assert parts.dump() == whole.dump()
    assert parts.attend(0, queries(spec)).tobytes() == whole.attend(0, queries(spec)).tobytes()


@settings(max_examples=20, deadline=None)
@given(codecs, policies, st.integers(1, 60), st.data())
def test_truncation_equals_a_fresh_cache_or_is_refused(
    codec: dict[str, Any], policy: dict[str, Any], length: int, data: st.DataObject
) -> None:
    spec = spec_of(codec, policy)
    layer = spec.layer(0)
    x = tokens(spec, length + 30)
    cache = filled(spec, x[:, :length], [length // 2 or length, length - (length // 2 or length)])
    n = data.draw(st.integers(0, length))
    before = cache.dump()
    s = layer.sealed(n)
    kept = n in (length, layer.sinks + s * 16) or n <= layer.sinks or s == layer.sealed(length)
    if not kept:
        with pytest.raises(TruncateError) as caught:
            cache.truncate(n)
        assert cache.dump() == before
        below = caught.value.allowed[0]
        cache.truncate(below)
        assert cache.length == below < n
        return
    try:
        cache.truncate(n)
    except SpanError:
        assert spec.span
        assert cache.dump() == before
        return
    assert cache.lengths == (n,)
    assert cache.dump() == filled(spec, x[:, :n]).dump()
    filled(spec, x[:, n:], cache=cache)
    fresh = filled(spec, x)
    assert cache.dump() == fresh.dump()
    assert cache.attend(0, queries(spec)).tobytes() == fresh.attend(0, queries(spec)).tobytes()


@pytest.mark.parametrize(
    ("n", "good"), [(40, 1), (35, 1), (34, 0), (18, 0), (2, 1), (1, 1), (0, 1)]
)
def test_truncation_table_with_a_window(n: int, good: int) -> None:
    spec = spec_of(CODECS[1], {"sinks": 2, "window": 17})
    cache = filled(spec, tokens(spec, 40))
    assert len(cache.pages(0)) == 1
    if good:
        cache.truncate(n)
        assert cache.length == n
    else:
        with pytest.raises(TruncateError, match="nearest allowed") as caught:
            cache.truncate(n)
        assert caught.value.allowed == (2, 35)


def test_truncation_to_a_page_boundary_needs_no_window() -> None:
    spec = spec_of(CODECS[1])
    cache = filled(spec, tokens(spec, 60))
    for n in (48, 32, 16, 0):
        cache.truncate(n)
        assert cache.dump() == filled(spec, tokens(spec, 60)[:, :n]).dump()


def test_truncation_is_refused_for_all_layers_or_none() -> None:
    spec = spec_of(CODECS[1], {"layers": 2, "layer_overrides": {1: {"window": 64}}})
    cache = filled(spec, tokens(spec, 50))
    before = cache.dump()
    with pytest.raises(TruncateError, match="layer 0"):
        cache.truncate(40)
    assert cache.dump() == before


def test_layers_of_different_length_are_cut_to_what_all_have() -> None:
    spec = spec_of({"layers": 2, "window": 99})
    cache = filled(spec, tokens(spec, 20))
    cache.append(0, *tokens(spec, 5, seed=3))
    assert cache.lengths == (25, 20)
    with pytest.raises(InputError):
        cache.truncate(21)
    cache.truncate(20)
    assert cache.dump() == filled(spec, tokens(spec, 20)).dump()


def test_spans_retire_whole_pages_at_the_next_append() -> None:
    spec = spec_of(CODECS[1], {"span": 8})
    x = tokens(spec, 65)
    cache = filled(spec, x[:, :64], [32, 32])
    # Live at 64: pages that end behind token 56. Held: what was live before the last append.
    assert len(cache.pages(0)) == 1
    cache.attend(0, queries(spec, 41))
    with pytest.raises(SpanError, match="layer 0"):
        cache.attend(0, queries(spec, 42))
    held = cache.nbytes["codes"]
    filled(spec, x[:, 64:], cache=cache)
    assert cache.nbytes["codes"] == held // 3
    with pytest.raises(SpanError):
        cache.truncate(48)
    assert cache.dump() == filled(spec, x).dump()


def test_an_append_of_nothing_changes_nothing() -> None:
    spec = spec_of(CODECS[1], {"span": 8})
    cache = filled(spec, tokens(spec, 64))
    held = cache.nbytes
    filled(spec, tokens(spec, 0), cache=cache)
    assert cache.nbytes == held


@pytest.mark.parametrize("codec", CODECS)
def test_forks_go_on_alone(codec: dict[str, Any]) -> None:
    spec = spec_of(codec, {"window": 4, "sinks": 2})
    x, other = tokens(spec, 70), tokens(spec, 30, seed=9)
    parent = filled(spec, x[:, :40])
    before = parent.dump()
    first, second = parent.fork(), parent.fork()
    filled(spec, x[:, 40:], cache=first)
    filled(spec, other, cache=second)
    assert parent.dump() == before
    assert first.dump() == filled(spec, x).dump()
    assert second.dump() == filled(spec, np.concatenate([x[:, :40], other], axis=1)).dump()
    parent.close()
    assert first.attend(0, queries(spec)).shape == (1, 4, 32)


@pytest.mark.parametrize("codec", CODECS)
def test_reset_equals_a_new_cache(codec: dict[str, Any]) -> None:
    spec = spec_of(codec)
    cache = filled(spec, tokens(spec, 50))
    cache.reset()
    assert cache.dump() == BACKEND.prepare(spec).dump()
    assert cache.counters.pages_encoded == 0
    filled(spec, tokens(spec, 20), cache=cache)
    assert cache.dump() == filled(spec, tokens(spec, 20)).dump()


def test_a_closed_cache_answers_nothing() -> None:
    spec = spec_of()
    with filled(spec, tokens(spec, 3)) as cache:
        pass
    cache.close()
    for call in (
        lambda: cache.lengths,
        lambda: cache.nbytes,
        lambda: cache.pages(0),
        cache.dump,
        cache.fork,
        cache.reset,
        lambda: cache.truncate(0),
        lambda: cache.attend(0, queries(spec)),
    ):
        with pytest.raises(StateError, match="closed"):
            call()


@settings(max_examples=20, deadline=None)
@given(codecs, policies, st.integers(0, 60))
def test_restore_gives_equal_state(codec: dict[str, Any], policy: dict[str, Any], n: int) -> None:
    spec = spec_of(codec, policy, {"layers": 2, "identity": Identity(model="m")})
    x = tokens(spec, n + 40)
    cache = filled(spec, x[:, :n])
    dump = cache.dump()
    copy = BACKEND.restore(spec, dump)
    assert copy.dump() == dump
    assert copy.lengths == cache.lengths
    filled(spec, x[:, n:], cache=copy)
    assert copy.dump() == filled(spec, x).dump()


def test_dumps_go_through_files(tmp_path: Path) -> None:
    spec = spec_of(CODECS[1])
    cache = filled(spec, tokens(spec, 33))
    data = cache.dump(tmp_path / "cache.kvdm")
    assert (tmp_path / "cache.kvdm").read_bytes() == data
    assert BACKEND.restore(spec, tmp_path / "cache.kvdm").dump() == data


def test_dumps_have_the_documented_bytes() -> None:
    spec = spec_of(CODECS[1], {"sinks": 2, "window": 3, "span": 20, "seed": 5})
    x = tokens(spec, 60)
    data = filled(spec, x).dump()
    text = spec.identity_text.encode()
    head = struct.unpack_from("<4sHHQIIII", data)
    crc = zlib.crc32(data[:16] + bytes(4) + data[20:])
    assert head == (b"KVDM", 1, 0, len(data), crc, 1, len(text), 0)
    assert data[32 : 32 + len(text)] == text
    at = -(-(32 + len(text)) // 16) * 16
    layer = spec.layer(0)
    section = -(-(at + 64) // 64) * 64
    assert struct.unpack_from("<4H6BH3IfQQIIQ", data, at) == (
        *(2, 4, 32, 16, 0x17, 0x15, 2, 1, 0, 2, 0, 3, 2, 20, layer.softmax_scale, 5),
        *(60, 2, 1, section),
    )
    # One frozen value mean, two sinks, residual 60 - 2 - 48, then the one live page.
    halves = np.frombuffer(data, "<f2", 64 + 2 * 2 * 64 + 2 * 10 * 64, section)
    page0 = x[1, 2:18].astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(halves[:64].reshape(2, 32), page0.mean(axis=0), rtol=2e-3, atol=1e-6)
    sinks = halves[64:192].reshape(2, 2, 32).transpose(1, 0, 2)
    assert (sinks == x[0, :2].astype(np.float16)).all()
    rest = halves[-2 * 640 : -640].reshape(2, 10, 32).transpose(1, 0, 2)
    assert (rest == x[0, 50:].astype(np.float16)).all()
    pages = -(-(section + halves.nbytes) // 64) * 64
    assert data[pages:] == filled(spec, x).pages(0)[0]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"seed": 2}, "seed"),
        ({"keys": "turbo:3"}, "keys"),
        ({"head_dim": 48}, "head_dim"),
        ({"rounds": 1}, "rounds"),
        ({"span": 7}, "span"),
        ({"softmax_scale": 0.5}, "softmax_scale"),
        ({"identity": Identity(model="m", tokens="other")}, "identity.tokens"),
        ({"identity": None}, "identity"),
    ],
)
def test_dumps_of_another_cache_are_refused_by_field(
    changed: dict[str, Any], field: str | None
) -> None:
    base = {"identity": Identity(model="m", tokens="t")}
    data = filled(spec_of(CODECS[1], base), tokens(spec_of(), 40)).dump()
    with pytest.raises(IdentityError) as caught:
        BACKEND.restore(spec_of(CODECS[1], base, changed), data)
    assert caught.value.field == field


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_dumps_are_refused(codec: dict[str, Any]) -> None:
    spec = spec_of(codec, {"sinks": 1})
    data = filled(spec, tokens(spec, 40)).dump()
    rng = np.random.default_rng(0)
    for bit in rng.integers(0, 8 * len(data), 300):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PageError):
            BACKEND.restore(spec, bytes(bad))
    for size in (0, 31, 32, len(data) // 2, len(data) - 1):
        with pytest.raises(PageError):
            BACKEND.restore(spec, data[:size])
    with pytest.raises(PageError):
        BACKEND.restore(spec, data + bytes(64))


def with_dump_crc(data: bytes) -> bytes:
    fixed = bytearray(data)
    fixed[16:20] = bytes(4)
    struct.pack_into("<I", fixed, 16, zlib.crc32(fixed))
    return bytes(fixed)


@pytest.mark.parametrize("value", [2**64 - 1, 2**32, 39, 41, 0])
@pytest.mark.parametrize("offset", [40, 48, 56])
def test_hostile_records_are_refused_before_anything_is_allocated(value: int, offset: int) -> None:
    spec = spec_of(CODECS[1])
    data = bytearray(filled(spec, tokens(spec, 40)).dump())
    record = -(-(32 + len(spec.identity_text)) // 16) * 16
    old = data[record + offset : record + offset + 8]
    data[record + offset : record + offset + 8] = struct.pack("<Q", value)
    assert old != data[record + offset : record + offset + 8]
    with pytest.raises(PageError):
        BACKEND.restore(spec, with_dump_crc(bytes(data)))


def test_hostile_counts_and_texts_are_refused() -> None:
    spec = spec_of(CODECS[1])
    data = filled(spec, tokens(spec, 40)).dump()
    for at, value in ((20, 2**32 - 1), (20, 3), (20, 0), (24, 2**32 - 1), (24, 3), (28, 1)):
        bad = data[:at] + struct.pack("<I", value) + data[at + 4 :]
        with pytest.raises((PageError, IdentityError)):
            BACKEND.restore(spec, with_dump_crc(bad))
    text = spec.identity_text.encode()
    for other in (b"\xff" * len(text), b"[" + b" " * (len(text) - 2) + b"]"):
        with pytest.raises(PageError):
            BACKEND.restore(spec, with_dump_crc(data.replace(text, other)))
    reordered = json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":"))
    assert len(reordered) == len(text)
    with pytest.raises(PageError, match="canonical"):
        BACKEND.restore(spec, with_dump_crc(data.replace(text, reordered.encode())))


def test_bad_numbers_in_a_dump_are_refused() -> None:
    spec = spec_of({"window": 99})
    data = bytearray(filled(spec, tokens(spec, 10)).dump())
    data[-2:] = struct.pack("<e", float("nan"))
    with pytest.raises(PageError, match="NaN"):
        BACKEND.restore(spec, with_dump_crc(bytes(data)))


@settings(max_examples=20, deadline=None)
@given(codecs, policies, st.integers(0, 80))
def test_bytes_billed_are_bytes_held(codec: dict[str, Any], policy: dict[str, Any], n: int) -> None:
    spec = spec_of(codec, policy, {"layers": 2})
    cache = filled(spec, tokens(spec, n), [1] * min(n, 5) + [max(0, n - 5)])
    cache.attend(0, queries(spec)) if n else None
    assert tuple(cache.nbytes) == BYTE_PARTS
    assert sum(cache.nbytes.values()) == walked(
        [vars(cache)["_states"], vars(cache)["_lineage"].kernels.transforms]
    )
    assert cache.nbytes["scratch"] == cache.nbytes["staging"] == 0
    assert cache.counters.peak_bytes >= sum(cache.nbytes.values())


def test_counters_say_what_ran() -> None:
    spec = spec_of(CODECS[1])
    cache = BACKEND.prepare(spec)
    assert not cache.counters.variants_ran
    filled(spec, tokens(spec, 40), cache=cache)
    assert cache.counters.pages_encoded == 2
    assert cache.counters.variants_ran == ("scalar",)
    cache.attend(0, queries(spec))
    assert cache.counters.pages_scanned == 2 * 2
    cache.scores(0, queries(spec)[0])
    assert cache.counters.pages_scanned == 4 * 2


@pytest.mark.parametrize(
    ("bad", "error"),
    [(np.nan, NonFiniteError), (np.inf, NonFiniteError), (65510.0, NonFiniteError)],
)
def test_bad_input_changes_nothing(bad: float, error: type[Exception]) -> None:
    spec = spec_of(CODECS[1])
    cache = filled(spec, tokens(spec, 30))
    before = cache.dump()
    x = tokens(spec, 20)
    x[1, 13, 1, 5] = bad
    with pytest.raises(error, match="token 13, head 1, channel 5"):
        cache.append(0, *x)
    with pytest.raises(InputError):
        cache.append(1, *tokens(spec, 1))
    with pytest.raises(InputError):
        cache.append(0, *tokens(spec, 2).astype(np.float64))
    assert cache.dump() == before


def test_more_queries_than_tokens_and_empty_layers_are_refused() -> None:
    spec = spec_of()
    cache = BACKEND.prepare(spec)
    with pytest.raises(StateError, match="no tokens"):
        cache.attend(0, queries(spec))
    filled(spec, tokens(spec, 2), cache=cache)
    with pytest.raises(StateError, match="3 queries"):
        cache.attend(0, queries(spec, 3))
    for threads in (0, -1, True, 1.5):
        with pytest.raises(InputError, match="threads"):
            BACKEND.prepare(spec, threads=threads)  # type: ignore[arg-type]


def test_strided_input_gives_the_same_state() -> None:
    spec = spec_of(CODECS[1])
    x = tokens(spec, 40)
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    wide.flags.writeable = False
    assert not wide.flags.c_contiguous
    assert filled(spec, wide).dump() == filled(spec, x).dump()
