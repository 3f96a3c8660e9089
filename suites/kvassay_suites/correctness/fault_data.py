"""Faults of values: heads, rows, scales, constants, overflow, subnormals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from kvassay.protocol import Backend

from ..common.inputs import gaussian
from ..oracle import attend64, decode_cache, read_dump
from .fault_case import expect, filled, kv, plain, query, same, turbo
from .readout import KV_HEADS, plain_spec, read_keys, read_values


def head_layouts(backend: Backend) -> None:
    """Query head h reads KV head floor(h * kv_heads / query_heads)."""
    for query_heads, kv_heads in ((48, 2), (40, 2), (80, 4), (28, 4), (9, 3), (8, 1), (12, 12)):
        spec = plain(query_heads=query_heads, kv_heads=kv_heads)
        k, _ = kv(spec, 20)
        numbers = np.arange(kv_heads, dtype=np.float32)[None, :, None]
        v = np.broadcast_to(numbers, k.shape).copy()
        with backend.prepare(spec) as cache:
            cache.append(0, k, v)
            found = cache.attend(0, query(spec))
        expected = np.arange(query_heads) * kv_heads // query_heads
        off = np.abs(found - expected[:, None]).max()
        expect(off < 1e-4, f"{query_heads} query heads on {kv_heads}: off by {off}")


def one_row(backend: Backend) -> None:
    """All weight on one fp16 token: the output is that row, every channel of it."""
    for d in (64, 80, 96, 112, 128, 160, 192, 256):
        spec = plain(head_dim=d, window=64)
        k, v = kv(spec, 40)
        v[7] = np.arange(1, 2 * d + 1, dtype=np.float32).reshape(2, d)
        with backend.prepare(spec) as cache:
            cache.append(0, k, v)
            q = 60 * np.repeat(k[7], 2, axis=0)
            for rows in (cache.attend(0, q), cache.attend(0, np.stack([q] * 3))[0]):
                expect(same(rows, np.repeat(v[7], 2, axis=0)), f"head dim {d}: another row")


def public_entries(backend: Backend) -> None:
    """One query, n queries, scores: all agree with float64 attention on the decoded cache."""
    spec = turbo(sinks=2, window=20, span=60)
    cache = filled(backend, spec, 90)
    q = gaussian(5, 7, spec.query_heads, spec.head_dim)
    state = decode_cache(cache.dump())[0]
    many, one = cache.attend(0, q), cache.attend(0, q[-1])
    expect(same(many[-1], one), "the last of n queries differs from the same query alone")
    for i, row in enumerate(many):
        visible = 90 - len(q) + 1 + i
        exact = attend64(state.k, state.v, q[i], state.softmax_scale, 60, 2, visible)
        error = np.abs(row - exact).max()
        expect(error < 0.02, f"query {i} of {len(q)} is off by {error}")
    cache.close()


def zero_vectors(backend: Backend) -> None:
    """A zero key scores exactly 0, and zero values give exactly 0."""
    for keys in ("turbo:2", "turbo:3.5", "turbo:3+qjl", "kivi:2", "fp16"):
        for values in ("turbo:2.5", "kivi:4", "fp16"):
            spec = turbo(keys=keys, values=values)
            zeros = np.zeros((35, 2, 64), np.float32)
            with backend.prepare(spec) as cache:
                cache.append(0, zeros, zeros)
                scores, out = cache.scores(0, query(spec)), cache.attend(0, query(spec))
            expect(not scores.any(), f"{keys}: a zero key scores {np.abs(scores).max()}")
            expect(not out.any(), f"{values}: zero values give {np.abs(out).max()}")


def constant_rows(backend: Backend) -> None:
    """Constant rows, per token and per channel, are recovered: 0/0 in many implementations."""
    for value in (100.0, -3e-5, 6e4):
        for codec in ("kivi:2", "kivi:4"):
            spec = turbo(keys=codec, values=codec, page_tokens=32)
            rows = np.full((32, 2, 64), value, np.float32)
            with backend.prepare(spec) as cache:
                cache.append(0, rows, rows)
                out = cache.attend(0, query(spec))
            stored = float(np.float16(value))
            off = np.abs(out / stored - 1).max()
            expect(off < 1e-3, f"{codec}: constant {value} comes back off by {off}, relative")


def overflow(backend: Backend) -> None:
    """One value at the edge of fp16 among small ones: no scale overflows, the rest stays sane."""
    for codec in ("kivi:4", "turbo:4"):
        spec = plain_spec(64, values=codec, window=2)
        k, v = gaussian(3, 66, KV_HEADS, 64), gaussian(4, 66, KV_HEADS, 64)
        v[:, :, 5] = -65504
        rows = read_values(backend, spec, k, v, 32)
        expect(np.isfinite(rows).all(), f"{codec}: not finite")
        off = np.abs(rows - v[:32]).max() / 65504
        expect(off < 0.06, f"{codec}: off by {off} of the largest value")


def large_norms(backend: Backend) -> None:
    """Norms beyond fp16 whose squares overflow it: distortion stays that of the codec."""
    for scale in ("u8", "u8log", "fp16"):
        spec = plain_spec(128, keys="turbo:4", scale=scale)
        k = np.clip(gaussian(6, 64, KV_HEADS, 128) * 1e4, -65000, 65000).astype(np.float32)
        k = k.astype(np.float16).astype(np.float32)
        found = read_keys(backend, spec, k, k)
        error = np.sum((found - k) ** 2) / np.sum(k.astype(np.float64) ** 2)
        expect(error < 0.013, f"{scale}: relative squared error {error}")


def small_values(backend: Backend) -> None:
    """Values among fp16 subnormals: scales below 1e-7 neither vanish nor become infinite."""
    for scale in ("u8", "u8log"):
        spec = plain_spec(64, values="turbo:4", window=4, scale=scale)
        k, v = gaussian(7, 68, KV_HEADS, 64), gaussian(8, 68, KV_HEADS, 64) * np.float32(1e-5)
        v = v.astype(np.float16).astype(np.float32)
        rows = read_values(backend, spec, k, v, 64)
        error = np.sum((rows - v[:64]) ** 2) / np.sum(v[:64].astype(np.float64) ** 2)
        expect(error < 0.013, f"{scale}: relative squared error {error}")


def norm_extraction(backend: Backend) -> None:
    """x and 32 x have equal codes; their scales are in ratio 32."""
    pages = []
    for factor in (1, 32):
        spec = turbo(keys="turbo:4", values="turbo:4", scale="fp16")
        k, v = kv(spec, 16)
        with backend.prepare(spec) as cache:
            cache.append(0, k * np.float32(factor), v)
            pages.append(read_dump(cache.dump()).page(0, 0))
    one, large = pages
    expect((one.raw("key codes") == large.raw("key codes")).all(), "codes differ")
    ratio = large.real("key scales") / one.real("key scales")
    expect(
        np.abs(ratio / 32 - 1).max() < 2e-3, f"scales are in ratio {ratio.min()} .. {ratio.max()}"
    )


def every_code(backend: Backend) -> None:
    """Every code of every width is really used: none is lost to a mask or a shift."""
    for codec, bits in (
        ("turbo:2", 2),
        ("turbo:3", 3),
        ("turbo:4", 4),
        ("kivi:2", 2),
        ("kivi:4", 4),
    ):
        spec = turbo(keys=codec, values=codec, page_tokens=48)
        cache = filled(backend, spec, 48)
        page = read_dump(cache.dump()).page(0, 0)
        for name in ("key codes", "value codes"):
            used = np.unique(page.raw(name))
            expect(len(used) == 2**bits, f"{codec} {name}: only codes {used.tolist()}")
        cache.close()


def aged_keys(backend: Backend) -> None:
    """Keys that leave the window are really quantized, and streaming does not spare them."""
    spec = turbo(keys="kivi:2", values="kivi:2", page_tokens=32, window=32)
    k, v = kv(spec, 200)
    with backend.prepare(spec) as streamed, backend.prepare(spec) as at_once:
        streamed.append(0, k[:32], v[:32])
        for token in range(32, 200):
            streamed.append(0, k[token : token + 1], v[token : token + 1])
        at_once.append(0, k, v)
        expect(streamed.dump() == at_once.dump(), "streamed tokens are stored otherwise")
        state = decode_cache(streamed.dump())[0]
    error = np.abs(state.k - k).max(axis=(1, 2))
    sealed = (200 - 32) // 32 * 32
    expect((error[:sealed] > 0).all(), "keys outside the window are stored exactly")
    expect(not error[sealed:].any(), "keys inside the window are not stored as fp16")


CASES: Final[Mapping[str, Callable[[Backend], None]]] = {
    "head layouts": head_layouts,
    "weight on one row": one_row,
    "public entries": public_entries,
    "zero vectors": zero_vectors,
    "constant rows": constant_rows,
    "overflow": overflow,
    "large norms": large_norms,
    "small values": small_values,
    "norm extraction": norm_extraction,
    "every code": every_code,
    "aged keys": aged_keys,
}
