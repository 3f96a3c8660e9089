"""Faults 8 to 12: codes, their order and their bytes, seen through pages in the documented form."""

from __future__ import annotations

from functools import partial
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.errors import UnavailableError, UnknownBackendError
from kvassay.protocol import Backend
from kvassay.registry import provider

from ...common.specs import KEY_CODECS, MATH, ONE_LAYER, VALUE_CODECS
from ...golden.cases import CASES as GOLDEN
from ...golden.cases import inputs, read
from ...oracle import (
    LayerState,
    OracleError,
    attend64,
    decode_cache,
    read_dump,
    read_page,
    rotation,
)
from ...oracle.page import Page
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, relative, seen, small

HEADER_BYTES: Final = 64
#: Relative RMS error of decoded Gaussian vectors, by the lower bits of the rate: a fifth above
#: what codecs of that rate lose.
LOSS: Final = {2: 0.42, 3: 0.24, 4: 0.13, 16: 0.001}


def _page(
    backend: Backend, spec: kvassay.Spec, k: NDArray[np.float32], v: NDArray[np.float32]
) -> Page:
    with filled(backend, spec, k, v) as cache:
        return read_page(cache.pages(0)[0])


@case(8, "bit width fixed to one case", MATH)
def every_code(find: Findings, subject: Subject) -> None:
    """For every codec a ramp that hits every code.

    Expected: all 2^b codes, in order.
    """
    for codec in (*KEY_CODECS, *VALUE_CODECS):
        if codec == "fp16":
            continue
        stream = "values" if codec in VALUE_CODECS else "keys"
        for which in {stream, "keys"}:
            spec = small(**{"head_dim": 256, "page_tokens": 32, which: codec})
            if find.executes(subject.backend, spec):
                ramp = _kivi_ramp if codec.startswith("kivi") else _turbo_ramp
                ramp(find, subject.backend, spec, which)


def _kivi_ramp(find: Findings, backend: Backend, spec: kvassay.Spec, stream: str) -> None:
    """Whole numbers from 0: every group starts at 0 in steps of 1, so a code is its number."""
    codec = spec.layer(0).keys if stream == "keys" else spec.layer(0).values
    token, head, channel = np.indices((32, 2, 256))
    numbers = (token + head + channel) % 2 ** int(codec.bits)
    x = numbers.astype(np.float32)
    found = _page(backend, spec, x, x).raw(f"{stream[:-1]} codes")
    expected = numbers.transpose(1, 0, 2).astype(found.dtype)
    find.equal(found, expected, f"{stream} {codec.name}: codes of whole numbers")


def _turbo_ramp(find: Findings, backend: Backend, spec: kvassay.Spec, stream: str) -> None:
    """The normal quantiles in order, turned so that the transform turns them back."""
    codec = spec.layer(0).keys if stream == "keys" else spec.layer(0).values
    d, splits = spec.head_dim, codec.splits(spec.head_dim)
    ramp = np.concatenate([_quantiles(n) for _, n, _ in splits])
    turn = rotation(d, spec.seed, 0 if stream == "keys" else 1, spec.rounds)
    rows = np.stack([8 * ramp @ turn, -8 * ramp @ turn])
    x = np.broadcast_to(rows[np.arange(32) % 2][:, None], (32, 2, d)).astype(np.float32)
    codes = _page(backend, spec, x, x).raw(f"{stream[:-1]} codes")
    for first, n, bits in splits:
        part = codes[..., first : first + n].astype(int)
        what = f"{stream} {codec.name}, channels from {first}"
        find.equal(sorted(set(part.ravel())), list(range(2**bits)), f"{what}: codes that occur")
        up, down = np.diff(part[:, ::2]), np.diff(part[:, 1::2])
        find.holds((up >= 0).all() and (up <= 1).all(), f"{what}: rise one by one with the ramp")
        find.holds((down <= 0).all() and (down >= -1).all(), f"{what}: fall when it is negated")


def _quantiles(n: int) -> NDArray[np.float64]:
    return np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])


@case(9, "tail dropped", MATH)
def tails(find: Findings, subject: Subject) -> None:
    """Head dims 16, 80, 112, pages of 16, 48, 80 tokens, rates 2.5, 3, 3.5, KIVI with short groups.

    Expected: bits x numbers / 8 bytes of codes, zeros between streams, last token and last
    channels decode like the others.
    """
    for d, page_tokens in ((80, 16), (112, 48), (80, 80), (16, 16)):
        for keys, values in (
            ("turbo:2.5", "turbo:3.5"),
            ("turbo:3", "turbo:3"),
            ("kivi:3", "kivi:3"),
        ):
            spec = small(head_dim=d, page_tokens=page_tokens, keys=keys, values=values)
            if not find.executes(subject.backend, spec):
                continue
            k, v = kv(spec, page_tokens, seed=d)
            who = f"{keys}/{values} head dim {d}, {page_tokens} tokens"
            with filled(subject.backend, spec, k, v) as cache:
                (data,) = cache.pages(0)
            try:
                page = read_page(data)
            except OracleError as error:
                find.holds(False, f"{who}: a page as documented", error)
                continue
            _exact_bytes(find, spec, page, who)
            for name, x, x_hat in (("keys", k, page.keys), ("values", v, page.values)):
                codec = spec.layer(0).keys if name == "keys" else spec.layer(0).values
                loss = LOSS[int(codec.bits)]
                for where, part in (
                    ("last token", np.s_[-1:]),
                    ("last 8 channels", np.s_[..., -8:]),
                ):
                    off = relative(x_hat[part], x[part])
                    find.holds(off < 1.5 * loss, f"{who}: {where} of {name} are stored", off)


def _exact_bytes(find: Findings, spec: kvassay.Spec, page: Page, who: str) -> None:
    """Code streams take bits x numbers / 8 bytes; what lies between streams is zero."""
    numbers = spec.kv_heads * spec.page_tokens * spec.head_dim
    for name, codec in (("key codes", spec.layer(0).keys), ("value codes", spec.layer(0).values)):
        find.equal(8 * page.streams[name].size, int(numbers * codec.bits), f"{who}: bits of {name}")
    used = bytearray(len(page.data))
    used[:HEADER_BYTES] = b"\1" * HEADER_BYTES
    for stream in page.streams.values():
        used[stream.offset : stream.offset + stream.size] = b"\1" * stream.size
    spare = bytes(byte for byte, taken in zip(page.data, used, strict=True) if not taken)
    find.equal(spare, bytes(len(spare)), f"{who}: bytes outside the streams")


@case(10, "codes one a byte, billed as dense", ONE_LAYER)
def dense_bytes(find: Findings, subject: Subject) -> None:
    """Three pages of each codec family.

    Expected: pages as long as their header says, codes billed to the byte, no page byte unbilled.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, page_tokens=32)
        if not find.executes(subject.backend, spec):
            continue
        with filled(subject.backend, spec, *kv(spec, 3 * 32)) as cache:
            pages, billed = cache.pages(0), cache.nbytes
        layer = spec.layer(0)
        bits = layer.keys.bits + layer.keys.qjl + layer.values.bits
        codes = int(3 * 32 * spec.kv_heads * spec.head_dim * bits) // 8
        who = f"{keys}/{values}"
        find.equal(billed["codes"], codes, f"{who}: bytes billed for codes")
        for page in pages:
            find.holds(_reads(page), f"{who}: a page as long as its header says", len(page))
        parts = sum(billed[part] for part in ("codes", "scales", "means", "headers"))
        total = sum(len(page) for page in pages)
        find.holds(parts >= total, f"{who}: no page byte unbilled", f"{parts} of {total}")


def _reads(page: bytes) -> bool:
    try:
        read_page(page)
    except OracleError:
        return False
    return True


@case(11, "one variant reads another's layout", ONE_LAYER)
def variants(find: Findings, subject: Subject) -> None:
    """Every variant forced by name on scales 1, 2, 4, 8, ....

    Expected: equal codes, doubled scales, equal bytes, the variant that was asked for ran; one
    that cannot run or does not exist is an error.
    """
    spec = small(scale="fp16", head_dim=128)
    base, _ = kv(spec, 1)
    k = base * 2.0 ** (np.arange(20, dtype=np.float32) % 8)[:, None, None]
    q = queries(spec, 3)
    with filled(subject.backend, spec, k, k) as cache:
        own = seen(cache, q)
        page = read_page(cache.pages(0)[0])
        find.equal(cache.counters.variants_ran, (subject.variant,), "the variants that ran")
    for name in ("key", "value"):
        codes, scales = page.raw(f"{name} codes"), page.real(f"{name} scales")
        find.equal(codes, np.repeat(codes[:, :1], 16, axis=1), f"{name} codes of 2^n x")
        powers = 2.0 ** (np.arange(16) % 8)
        find.equal(scales, scales[:, :1] * powers, f"{name} scales of 2^n x")
    _each_variant(find, subject, spec, k, own)


def _each_variant(
    find: Findings,
    subject: Subject,
    spec: kvassay.Spec,
    k: NDArray[np.float32],
    own: dict[str, bytes],
) -> None:
    for variant, state in provider(subject.name).variants().items():
        if not state.runs:
            what = f"variant {variant}, which is {state.status},"
            find.refused(partial(kvassay.load, subject.name, variant), UnavailableError, what)
            continue
        loaded = kvassay.load(subject.name, variant)
        with filled(loaded, spec, k, k) as cache:
            for name, bytes_ in seen(cache, queries(spec, 3)).items():
                find.equal(bytes_, own[name], f"variant {variant}: {name}")
            find.equal(cache.counters.variants_ran, (variant,), f"{variant}: the variants that ran")
    find.refused(
        lambda: kvassay.load(subject.name, "no-such-variant"),
        UnknownBackendError,
        "a bogus variant",
    )


@case(12, "documentation older than the bytes", ONE_LAYER)
def documentation(find: Findings, subject: Subject) -> None:
    """A reader written from docs/ alone opens the golden dumps and the backend's own.

    Expected: the golden outputs; decoded rows within the codec's loss.
    """
    for name in GOLDEN:
        dump = read(name, "dump")
        state = decode_cache(dump)[0]
        q = inputs(name, 0)[2]
        exact = np.stack(
            [_attend64(state, row, len(state.k) - len(q) + 1 + i) for i, row in enumerate(q)]
        )
        kept = np.frombuffer(read(name, "outputs"), "<f4")[: exact.size].reshape(exact.shape)
        off = relative(kept, exact)
        find.holds(off < 0.03, f"golden {name}: read by the documents, gives its outputs", off)
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, window=3, sinks=1, key_centre="page")
        if not find.executes(subject.backend, spec):
            continue
        k, v = kv(spec, 40)
        with filled(subject.backend, spec, k, v) as cache:
            dump = cache.dump()
        find.equal(read_dump(dump).identity["keys"], keys, f"{keys}: codec in the dump's text")
        state = decode_cache(dump)[0]
        for what, codec, x_hat, x in (
            ("keys", spec.layer(0).keys, state.k, k),
            ("values", spec.layer(0).values, state.v, v),
        ):
            off = relative(x_hat, x)
            find.holds(off < LOSS[int(codec.bits)], f"{keys}/{values}: {what} as documented", off)


def _attend64(state: LayerState, q: NDArray[np.float32], visible: int) -> NDArray[np.float64]:
    return attend64(state.k, state.v, q, state.softmax_scale, state.span, state.sinks, visible)
