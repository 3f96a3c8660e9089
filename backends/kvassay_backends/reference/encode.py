"""Sealing: the bytes of a page from its fp16 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvassay.page.layout import Header, PageLayout, assemble
from kvassay.page.tiles import pack_keys, pack_values
from kvassay.spec import Identity, LayerSpec

from . import kivi, turbo
from .arithmetic import F16, F32, f16s, f32, single
from .scales import Scales
from .transform import KEYS, SIGNS, VALUES, Transform

Arrays = dict[str, NDArray[Any]]


@lru_cache
def layout_of(spec: LayerSpec) -> PageLayout:
    """The page layout of a layer."""
    return PageLayout(spec)


@dataclass(frozen=True)
class Means:
    """Frozen means of a layer (kv_heads, head_dim), where the spec has them and page 0 was
    sealed."""

    keys: F16 | None = None
    values: F16 | None = None


def page_mean(tokens: F16) -> F16:
    """The mean of tokens (heads, tokens, d) a head and channel, summed in token order (section
    3)."""
    total = np.zeros((tokens.shape[0], tokens.shape[2]), np.float32)
    for j in range(tokens.shape[1]):
        total += f32(tokens[:, j])
    return f16s(single(total / np.float32(tokens.shape[1])))


def frozen_means(spec: LayerSpec, keys: F16, values: F16) -> Means:
    """The means that page 0 (heads, tokens, d) freezes for its layer."""
    return Means(
        page_mean(keys) if spec.key_centre == "frozen" else None,
        page_mean(values) if spec.value_centre == "frozen" else None,
    )


def seal(
    spec: LayerSpec,
    transforms: dict[int, Transform],
    means: Means,
    keys: F16,
    values: F16,
    layer: int,
    token_start: int,
    identity: Identity | None,
) -> bytes:
    """The page of keys and values (heads, page_tokens, d)."""
    own_mean = page_mean(keys) if spec.key_centre == "page" else None
    arrays = {
        **_encode_keys(spec, transforms, keys, means.keys if own_mean is None else own_mean),
        **_encode_values(spec, transforms, values, means.values),
    }
    if own_mean is not None:
        arrays["key_mean"] = own_mean
    header = Header.of(spec, layer, token_start, identity)
    return assemble(layout_of(spec), header, arrays)


def _centred(tokens: F16, mean: F16 | None) -> F32:
    r = f32(tokens)
    return r if mean is None else single(r - f32(mean)[:, np.newaxis])


def _encode_keys(
    spec: LayerSpec, transforms: dict[int, Transform], keys: F16, mean: F16 | None
) -> Arrays:
    codec = spec.keys
    if codec.family == "fp16":
        return {"key_codes": keys}
    r = _centred(keys, mean)
    splits = codec.splits(spec.head_dim)
    if codec.family == "kivi":
        codes, steps, minima = kivi.encode_keys(r, int(codec.bits))
        return {
            "key_codes": pack_keys(codes, splits),
            "key_steps": steps,
            "key_minima": minima,
        }
    projection = transforms[SIGNS] if codec.qjl else None
    coded = turbo.encode(codec, r, transforms[KEYS], spec.scale, projection, keys=True)
    arrays: Arrays = {"key_codes": pack_keys(coded.codes, splits)}
    arrays |= _scale_streams(coded.scales, "key_scales", "key_maxima")
    if coded.signs is not None and coded.norms is not None:
        arrays["key_signs"] = pack_keys(coded.signs, ((0, spec.head_dim, 1),))
        arrays |= _scale_streams(coded.norms, "key_norms", "norm_maxima")
    return arrays


def _encode_values(
    spec: LayerSpec, transforms: dict[int, Transform], values: F16, mean: F16 | None
) -> Arrays:
    codec = spec.values
    if codec.family == "fp16":
        return {"value_codes": values}
    r = _centred(values, mean)
    splits = codec.splits(spec.head_dim)
    if codec.family == "kivi":
        codes, steps, minima = kivi.encode_values(r, int(codec.bits))
        return {
            "value_codes": pack_values(codes, splits),
            "value_steps": steps,
            "value_minima": minima,
        }
    coded = turbo.encode(codec, r, transforms[VALUES], spec.scale, None, keys=False)
    arrays: Arrays = {"value_codes": pack_values(coded.codes, splits)}
    return arrays | _scale_streams(coded.scales, "value_scales", "value_maxima")


def _scale_streams(scales: Scales, stored: str, maxima: str) -> Arrays:
    streams: Arrays = {stored: scales.stored}
    if scales.maxima is not None:
        streams[maxima] = scales.maxima
    return streams
