"""Proof that a named codec runs: one stored bit is flipped, and the output must change."""

from __future__ import annotations

import random
from collections.abc import Iterator

import kvassay
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common.inputs import gaussian
from ..common.specs import ONE_LAYER, make_spec, record
from ..oracle import flip_code, flip_token, read_dump

#: Bit of an fp16 number that a flip changes: the highest of its mantissa.
MANTISSA = 9
FLIPS = 12


def measure(
    backend: str, variant: str, keys: str, values: str, head_dim: int, preset: str = ""
) -> list[Record]:
    """How many of the codecs and fp16 parts of a cache are dead: a flip there changes nothing."""
    loaded = kvassay.load(backend, variant)
    if preset:
        spec = kvassay.preset(preset, layers=1, kv_heads=2, query_heads=8, head_dim=head_dim)
    else:
        spec = make_spec(
            kv_heads=2,
            query_heads=8,
            head_dim=head_dim,
            keys=keys,
            values=values,
            sinks=2,
            window=5,
        )
    layer = spec.layer(0)
    count = layer.sinks + layer.window + 2 * layer.page_tokens
    k, v = gaussian(41, count, 2, head_dim), gaussian(42, count, 2, head_dim)
    q = gaussian(43, 8, head_dim)
    with loaded.prepare(spec) as cache:
        cache.append(0, k, v)
        dump, output = cache.dump(), cache.attend(0, q).tobytes()
    dead: dict[str, str] = {}
    tried = 0
    for stream, where, changed in _flips(spec, dump):
        tried += 1
        if _attend(loaded, spec, changed, q) == output:
            dead.setdefault(stream, where)
    return [
        record(
            "correctness.codec_dead",
            ONE_LAYER,
            backend,
            variant,
            len(dead),
            "codecs",
            tried,
            subject=f"{spec.keys}/{spec.values} d{head_dim}",
            preset=preset,
            detail={"first flip without effect": dead},
        )
    ]


def _attend(backend: Backend, spec: kvassay.Spec, dump: bytes, q: object) -> bytes:
    with backend.restore(spec, dump) as cache:
        return cache.attend(0, q).tobytes()  # type: ignore[arg-type]


def _flips(spec: kvassay.Spec, dump: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Stream, place and the changed dump, for every stream and fp16 part that the dump has."""
    draw = random.Random(0)
    layer = spec.layer(0)
    parts = read_dump(dump).layers[0]
    streams = ["key codes", "value codes", *(["key signs"] if layer.keys.qjl else [])]
    for stream in streams:
        codec = layer.values if stream == "value codes" else layer.keys
        for number in range(FLIPS):
            page = number % len(parts.page_offsets)
            head, token = draw.randrange(layer.kv_heads), draw.randrange(layer.page_tokens)
            first, channels, bits = draw.choice(codec.splits(layer.head_dim))
            channel = first + draw.randrange(channels)
            bit = 0 if stream == "key signs" else draw.randrange(bits)
            bit = MANTISSA if codec.family == "fp16" else bit
            where = f"page {page} head {head} token {token} channel {channel} bit {bit}"
            yield stream, where, flip_code(dump, 0, page, stream, head, token, channel, bit)
    for name, section in parts.sections.items():
        if len(section.shape) == 3 and section.shape[1]:
            head, token, channel = (draw.randrange(n) for n in section.shape)
            where = f"head {head} token {token} channel {channel}"
            yield name, where, flip_token(dump, 0, name, head, token, channel, MANTISSA)
