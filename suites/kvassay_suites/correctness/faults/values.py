"""Faults 13 to 16 and 19 to 22: numbers at the edges of what metadata can hold."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.errors import NonFiniteError, PageError
from kvassay.protocol import Backend

from ...common.inputs import gaussian
from ...common.specs import MATH, ONE_LAYER
from ...oracle import decode_cache, read_dump, read_page
from .case import PAIRS, Findings, Subject, case, filled, kv, patched, queries, relative, small

SCALES: Final = ("u8", "u8log", "fp16")
_F16_TINY: Final = 2.0**-24


def _rows(x: NDArray[np.floating], tokens: int = 32) -> NDArray[np.float32]:
    """A row (64,) as (tokens, 2, 64)."""
    return np.broadcast_to(x, (tokens, 2, 64)).astype(np.float32)


def _finite_metadata(find: Findings, data: bytes, who: str) -> None:
    page = read_page(data)
    for name, stream in page.streams.items():
        if stream.dtype in ("<f2", "<f4"):
            find.holds(np.isfinite(page.real(name)).all(), f"{who}: {name} are finite")


@case(13, "metadata beyond fp16", MATH)
def overflow(find: Findings, subject: Subject) -> None:
    """64 values in -1 .. 4 with one -125000, then one -65504; per token and per channel.

    Expected: -125000 refused; finite metadata, others off by at most half a step.
    """
    x = gaussian(3, 64) * 0.5 + 1.5
    x = np.clip(x, -1, 4)
    for keys, values in (("kivi:4", "kivi:4"), ("turbo:4", "turbo:4")):
        spec = small(keys=keys, values=values, page_tokens=32, scale="fp16")
        if not find.executes(subject.backend, spec):
            continue
        x[17] = -125000
        bad = _rows(x)
        with subject.backend.prepare(spec) as cache:
            find.kept(cache, partial(cache.append, 0, bad, bad), NonFiniteError, "-125000")
        x[17] = -65504
        k = v = _rows(x)
        k = k.copy()
        k[5:, :, 17] = 3  # the outlier of a channel is one token of its group
        with filled(subject.backend, spec, k, v) as cache:
            dump, (page,) = cache.dump(), cache.pages(0)
            out = cache.attend(0, queries(spec, 1)[0])
        who = f"{keys} with one -65504 in a group"
        _finite_metadata(find, page, who)
        find.holds(np.isfinite(out).all(), f"{who}: finite outputs")
        state = decode_cache(dump)[0]
        if keys.startswith("kivi"):
            half = (65504 + 4) / 15 / 2
            off = max(np.abs(state.k - k).max(), np.abs(state.v - v).max())
            find.holds(off < 1.02 * half, f"{who}: off by at most half a step, {half:.0f}", off)
        else:
            off = max(relative(state.k, k), relative(state.v, v))
            find.holds(off < 0.2, f"{who}: vectors within 20 %", off)


@case(14, "constant and zero rows", MATH)
def constants(find: Findings, subject: Subject) -> None:
    """0, 100, -3e-5, 6e4; with and without centring.

    Expected: finite metadata, the value comes back, zero scores exactly 0.
    """
    for keys, values in PAIRS:
        for centred in (False, True):
            fields = {"key_centre": "page", "value_centre": "frozen"} if centred else {}
            spec = small(keys=keys, values=values, page_tokens=32, **fields)
            if not find.executes(subject.backend, spec):
                continue
            exact = centred or keys.startswith(("kivi", "fp16"))
            for value in (0.0, 100.0, -3e-5, 6e4):
                who = f"{keys}/{values}{' centred' if centred else ''}, rows of {value:g}"
                _constant(find, subject.backend, spec, value, 0.002 if exact else 0.45, who)


def _constant(
    find: Findings, backend: Backend, spec: kvassay.Spec, value: float, loss: float, who: str
) -> None:
    x = _rows(np.full(64, value))
    stored = float(np.float16(value))
    with filled(backend, spec, x, x) as cache:
        (page,), state = cache.pages(0), decode_cache(cache.dump())[0]
        q = queries(spec, 1)[0]
        scores, out = cache.scores(0, q), cache.attend(0, q)
    _finite_metadata(find, page, who)
    if value == 0:
        found = [np.abs(x).max() for x in (state.k, state.v, scores, out)]
        find.holds(not any(found), f"{who}: keys, values, scores and outputs exactly 0", found)
        return
    for name, rows in (("keys", state.k), ("values", state.v), ("outputs", out)):
        off = relative(rows, np.full(rows.shape, stored))
        find.holds(off <= loss, f"{who}: {name} come back within {loss}", off)


@case(15, "norms that overflow or vanish", MATH)
def norms(find: Findings, subject: Subject) -> None:
    """64 x 1e20, 64 x 1e-23, 128 x 32, 256 x 65504, each kind of scale.

    Expected: refused at append; exactly 0; norms within 6 %.
    """
    for kind in SCALES:
        spec = small(scale=kind)
        if not find.executes(subject.backend, spec):
            continue
        with subject.backend.prepare(spec) as cache:
            huge = np.full((16, 2, 64), 1e20, np.float32)
            what = f"scale {kind}: 64 x 1e20"
            find.kept(cache, partial(cache.append, 0, huge, huge), NonFiniteError, what)
            cache.append(0, huge * np.float32(1e-43), huge * np.float32(1e-43))
            q = queries(spec, 1)[0]
            scores, out = cache.scores(0, q), cache.attend(0, q)
        find.holds(not scores.any() and not out.any(), f"scale {kind}: 64 x 1e-23 scores exactly 0")
        _known_norm(find, subject.backend, kind)


def _known_norm(find: Findings, backend: Backend, kind: str) -> None:
    for value, d in ((32.0, 128), (65504.0, 256)):
        spec = small(scale=kind, head_dim=d)
        x = np.full((16, 2, d), value, np.float32)
        x[:, :, ::3] *= -1
        with filled(backend, spec, x, x) as cache:
            state = decode_cache(cache.dump())[0]
        norm = value * d**0.5
        for name, rows in (("keys", state.k), ("values", state.v)):
            found = np.linalg.norm(rows, axis=-1)
            off = np.abs(found / norm - 1).max()
            find.holds(off < 0.06, f"scale {kind}: {name} of norm {norm:.0f}", f"{off:.3f} off")


@case(16, "no norm taken out", MATH)
def norm_taken_out(find: Findings, subject: Subject) -> None:
    """X and 37 x.

    Expected: equal codes, scales in the ratio 37.
    """
    x = np.round(4 * gaussian(8, 16, 2, 64))
    for keys in ("turbo:2", "turbo:3.5", "turbo:4", "turbo:3+qjl"):
        for kind in SCALES:
            spec = small(keys=keys, scale=kind)
            if not find.executes(subject.backend, spec):
                continue
            pages = []
            for factor in (1, 37):
                with filled(subject.backend, spec, factor * x, factor * x) as cache:
                    pages.append(read_page(cache.pages(0)[0]))
            who = f"{keys}, scale {kind}"
            for name in ("key", "value"):
                codes = [page.raw(f"{name} codes") for page in pages]
                find.equal(codes[1], codes[0], f"{who}: {name} codes of 37 x and of x")
                one, many = (page.scales(f"{name} scales", f"{name} maxima") for page in pages)
                off = np.abs(many / one / 37 - 1).max()
                find.holds(off < 0.002, f"{who}: {name} scales in the ratio 37", f"{off} off")


@case(19, "bad scales in a stored page", ONE_LAYER)
def stored_scales(find: Findings, subject: Subject) -> None:
    """Negative, NaN, infinite and subnormal maxima; negative, NaN and infinite fp16 scales; NaN and
    infinite minima, means and tokens.

    Expected: refused when loaded; a zero is allowed and gives finite outputs.
    """
    for keys, values, kind in (
        ("turbo:4", "turbo:3", "u8"),
        ("turbo:3+qjl", "turbo:3", "u8log"),
        ("turbo:3+qjl", "turbo:4", "fp16"),
        ("kivi:2", "kivi:4", "u8"),
        ("fp16", "fp16", "u8"),
    ):
        spec = small(keys=keys, values=values, scale=kind, key_centre="page", window=2, sinks=1)
        if not find.executes(subject.backend, spec):
            continue
        with filled(subject.backend, spec, *kv(spec, 40)) as cache:
            dump = cache.dump()
        for what, changed, good in _changes(dump):
            who = f"{keys}/{values} {kind}: {what}"
            if not good:
                find.refused(partial(subject.backend.restore, spec, changed), PageError, who)
                continue
            with subject.backend.restore(spec, changed) as cache:
                out = cache.attend(0, queries(spec, 1)[0])
            find.holds(np.isfinite(out).all(), f"{who}: allowed, and finite when read")


def _changes(dump: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """What was put where, the dump with its checksums right, and whether it may be loaded."""
    page = read_dump(dump).page(0, 1)
    for name, stream in page.streams.items():
        if stream.dtype not in ("<f2", "<f4"):
            continue
        form = "<e" if stream.dtype == "<f2" else "<f"
        signed = name.endswith(("minima", "mean", "codes"))
        numbers = [("NaN", float("nan"), False), ("infinity", float("inf"), False)]
        numbers += [("-infinity", float("-inf"), False), ("zero", 0.0, True)]
        if not signed:
            numbers.append(("a negative number", -0.5, False))
        if form == "<f":
            numbers.append(("a subnormal number", 1e-40, False))
        for where in (0, stream.size - struct.calcsize(form)):
            for what, number, good in numbers:
                edit = {stream.offset + where: struct.pack(form, number)}
                yield f"{what} in {name} at {where}", patched(dump, edit, page=1), good


@case(20, "subnormal scales", MATH)
def subnormals(find: Findings, subject: Subject) -> None:
    """KIVI steps of 6e-8, fp16 scales of tiny vectors; 2048 numbers at fp16's subnormals and ties.

    Expected: no loss; fp16 as Python's own conversion gives it.
    """
    _half_conversion(find, subject.backend)
    for keys, values in (("kivi:2", "kivi:2"), ("kivi:4", "kivi:4"), ("turbo:4", "turbo:4")):
        spec = small(keys=keys, values=values, page_tokens=32, scale="fp16")
        if not find.executes(subject.backend, spec):
            continue
        levels = 2 ** int(spec.layer(0).keys.bits) - 1
        numbers = np.indices((32, 2, 64)).sum(axis=0) % (levels + 1)
        x = (numbers * _F16_TINY).astype(np.float32)
        if keys.startswith("turbo"):
            x = gaussian(4, 32, 2, 64) * np.float32(2e-5)
        with filled(subject.backend, spec, x, x) as cache:
            (page,), dump = cache.pages(0), cache.dump()
            out = cache.attend(0, queries(spec, 1)[0])
        state = decode_cache(dump)[0]
        _finite_metadata(find, page, keys)
        find.holds(np.isfinite(out).all(), f"{keys}: finite outputs")
        off = max(relative(state.k, x), relative(state.v, x))
        bound = 0.0 if keys.startswith("kivi") else 0.2
        find.holds(off <= bound, f"{keys}: steps of 6e-8 lose at most {bound}", off)


def _half_conversion(find: Findings, backend: Backend) -> None:
    """Against Python's own conversion to binary16, which no numeric library can have changed."""
    spec = small(sinks=16)
    if not find.executes(backend, spec):
        return
    steps = np.arange(-256, 256, dtype=np.float64)
    ladder = np.concatenate([steps * 2.0**-25, 1 + steps * 2.0**-12])
    x = ladder.astype(np.float32).reshape(16, 2, 32)
    x = np.concatenate([x, np.nextafter(x, np.float32(1))], axis=-1)
    with filled(backend, spec, x, x) as cache:
        dump = cache.dump()
    where = read_dump(dump).layers[0].sections["sink keys"]
    rows = x.transpose(1, 0, 2).ravel().tolist()
    expected = b"".join(struct.pack("<e", number) for number in rows)
    found = dump[where.offset : where.offset + len(expected)]
    find.equal(found, expected, "fp16 of subnormals and ties")


@case(21, "strong bias of a few key channels", ONE_LAYER)
def key_bias(find: Findings, subject: Subject) -> None:
    """Two channels +600, centred by page and by the frozen mean.

    Expected: logits off by less than 1.5 times what they are without the bias.
    """
    for keys in ("turbo:4", "turbo:3.5", "turbo:3+qjl"):
        for centre in ("page", "frozen"):
            spec = small(keys=keys, key_centre=centre, head_dim=128, page_tokens=64)
            if not find.executes(subject.backend, spec):
                continue
            plain, biased = (_logit_error(subject.backend, spec, bias) for bias in (0.0, 600.0))
            what = f"{keys}, centre {centre}: logit error with the bias over that without"
            find.holds(biased < 1.5 * plain, f"{what} is below 1.5", biased / plain)
            find.holds(0 < plain < 0.5, f"{what}: without, it is that of the codec", plain)


def _logit_error(backend: Backend, spec: kvassay.Spec, bias: float) -> float:
    """RMS error of logits over that of the logits of unbiased keys; fp16 keys are exact here."""
    k, v = kv(spec, 256)
    q = queries(spec, 1)[0]
    scale = spec.effective_softmax_scale
    shift = np.zeros(128, np.float32)
    shift[[5, 77]] = bias
    stored = (k + shift).astype(np.float16).astype(np.float64)
    heads = np.repeat(stored, 2, axis=1)
    exact = np.einsum("thd,hd->ht", heads, q.astype(np.float64)) * scale
    size = np.sqrt(np.mean(np.einsum("thd,hd->ht", np.repeat(k, 2, axis=1), q) ** 2)) * scale
    with filled(backend, spec, (k + shift).astype(np.float32), v) as cache:
        found = cache.scores(0, q)
    return float(np.sqrt(np.mean((found - exact) ** 2)) / size)


@case(22, "integer sums that saturate", ONE_LAYER)
def saturation(find: Findings, subject: Subject) -> None:
    """20 keys of 65504 in every channel against queries of -65504, with and without pages.

    Expected: finite outputs, and scores within 2 % of the exact ones (5 % with a sign projection):
    the unbiased scale makes the score of a key with itself exact, whatever its codes.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values)
        if not find.executes(subject.backend, spec):
            continue
        rows = _rows(np.full(64, 65504), tokens=20)
        q = np.full((4, 64), -65504, np.float32)
        exact = -(65504.0**2) * 64 * spec.effective_softmax_scale
        with filled(subject.backend, spec, rows, -rows) as cache:
            out, scores = cache.attend(0, q), cache.scores(0, q)
        find.holds(np.isfinite(out).all(), f"{keys}/{values}: finite outputs")
        off = np.abs(scores / exact - 1).max()
        bound = 0.05 if "+qjl" in keys else 0.02
        find.holds(off < bound, f"{keys}/{values}: scores of the largest keys", f"{off} off")
