"""A cache whose layers are uint8 tensors that ONNX Runtime's operators update in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvassay.backend.checks import (
    check_append,
    check_layer,
    check_queries,
    check_room,
    check_score_query,
    check_tokens,
)
from kvassay.errors import CacheMemoryError, SpanError, TruncateError
from kvassay.page.dump import first_live_page, pack_dump, parse_dump
from kvassay.page.layout import PageLayout
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import LayerSpec, Spec

from .blocks import Blocks, ByteArray
from .sessions import NodeSessions

#: Room of a new block, in pages.
_FIRST_PAGES: Final = 4
#: Bytes of a block's header.
_BLOCK_HEADER: Final = 128


@dataclass(frozen=True)
class Layer:
    """What runs one layer: its blocks and its sessions."""

    spec: LayerSpec
    blocks: Blocks
    sessions: NodeSessions
    threads: int

    def scratch(self, block: ByteArray) -> int:
        """Bytes of scratch that runs over this block need; nodes share them."""
        return self.blocks.scratch_bytes(block, self.threads) if self.sessions.made else 0


class OrtCache(Cache):
    """One sequence, a block a layer. A full block is replaced by one of twice the room."""

    def __init__(self, spec: Spec, layers: Sequence[Layer], variants: tuple[str, ...]) -> None:
        self.spec = spec
        self._layers = layers
        self._variants = variants
        self._closed = False
        self._empty()

    @classmethod
    def restored(
        cls, spec: Spec, layers: Sequence[Layer], variants: tuple[str, ...], data: bytes
    ) -> OrtCache:
        """The cache of a dump; see `Backend.restore_bytes`."""
        cache = cls(spec, layers, variants)
        for index, dump in enumerate(parse_dump(spec, data)):
            at = layers[index]
            cache._room[index] = max(cache._room[index], len(dump.pages))
            cache._states[index] = at.blocks.filled(dump, cache._room[index])
        cache._note_peak()
        return cache

    def _empty(self) -> None:
        #: Pages that each block has room for.
        self._room = [_FIRST_PAGES] * len(self._layers)
        pairs = zip(self._layers, self._room, strict=True)
        self._states: list[ByteArray] = [at.blocks.empty(room) for at, room in pairs]
        self._encoded = self._scanned = self._ran = self._peak = 0
        self._note_peak()

    def _note_peak(self) -> None:
        self._peak = max(self._peak, self._allocated())

    def _allocated(self) -> int:
        held = sum(len(block) + at.blocks.plan_bytes for at, block in self._held())
        return held + self._scratch()

    def _scratch(self) -> int:
        """Working memory of the kernels; sessions, as tables, belong to no cache."""
        return max(at.scratch(block) for at, block in self._held())

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        if not len(keys):
            return
        at, block = self._layers[layer], self._states[layer]
        length = at.blocks.length(block)
        check_room(layer, length, len(keys))
        needed = at.spec.sealed(length + len(keys)) - first_live_page(at.spec, length)
        room = self._room[layer]
        if needed > room:
            room = max(needed, 2 * room)
            try:
                block = at.blocks.moved(block, room)
            except MemoryError:
                raise CacheMemoryError(
                    f"append: no memory for {room} pages of layer {layer}; the cache is as it was"
                ) from None
        self._ran |= at.sessions.append(block, keys, values)
        self._states[layer], self._room[layer] = block, room
        self._encoded += at.spec.sealed(length + len(keys)) - at.spec.sealed(length)
        self._note_peak()

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        at, block = self._layers[layer], self._states[layer]
        length = at.blocks.length(block)
        queries = check_queries(self.spec, layer, q, length)
        out, ran = at.sessions.attend(block, queries)
        self._ran |= ran
        visible = range(length - len(queries) + 1, length + 1)
        self._scanned += sum(_pages_read(at.spec, n, length) for n in visible)
        return out.reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        at, block = self._layers[layer], self._states[layer]
        length = at.blocks.length(block)
        query = check_score_query(self.spec, layer, q, length)
        shape = (1, self.spec.query_heads, self.spec.head_dim)
        out, ran = at.sessions.scores(block, query.reshape(shape))
        self._ran |= ran
        self._scanned += _pages_read(at.spec, length, length)
        return out

    @property
    def lengths(self) -> tuple[int, ...]:
        require_open(self._closed)
        return tuple(at.blocks.length(block) for at, block in self._held())

    def _held(self) -> Iterator[tuple[Layer, ByteArray]]:
        return zip(self._layers, self._states, strict=True)

    @property
    def nbytes(self) -> dict[str, int]:
        require_open(self._closed)
        held = dict.fromkeys(BYTE_PARTS, 0)
        for at, block in self._held():
            for part, size in _layer_bytes(at, block).items():
                held[part] += size
            held["headers"] += at.blocks.plan_bytes
        held["scratch"] = self._scratch()
        return held

    @property
    def counters(self) -> Counters:
        require_open(self._closed)
        ran = (name for i, name in enumerate(self._variants) if self._ran >> i & 1)
        return Counters(self._encoded, self._scanned, tuple(ran), self._peak)

    def pages(self, layer: int) -> list[bytes]:
        require_open(self._closed)
        layer = check_layer(self.spec, layer)
        return list(self._layers[layer].blocks.read(self._states[layer]).pages)

    def truncate(self, n: int) -> None:
        require_open(self._closed)
        n = check_tokens(n, self.length)
        refusals = [self._refusal(at, block, n) for at, block in self._held()]
        refusal = next((refusal for refusal in refusals if refusal is not None), None)
        if refusal is not None:
            raise self._with_allowed(refusal, n)
        for at, block in self._held():
            if at.blocks.length(block) > n:
                at.blocks.truncate(block, n)

    def _refusal(self, at: Layer, block: ByteArray, n: int) -> TruncateError | SpanError | None:
        try:
            at.blocks.reaches(block, n)
        except (TruncateError, SpanError) as error:
            return error
        return None

    def _with_allowed(self, refusal: TruncateError | SpanError, n: int) -> Exception:
        """The refusal with the nearest lengths that every layer reaches."""

        def reached(length: int) -> bool:
            return all(self._refusal(at, block, length) is None for at, block in self._held())

        below = next(filter(reached, range(n - 1, -1, -1)))  # 0 always is
        above = next(filter(reached, range(n + 1, self.length + 1)), None)
        allowed = (below,) if above is None else (below, above)
        text = str(refusal).partition("; nearest")[0]
        message = f"{text}; nearest allowed lengths: {', '.join(map(str, allowed))}"
        if isinstance(refusal, TruncateError):
            return TruncateError(message, allowed=allowed)
        return SpanError(message)

    def fork(self) -> OrtCache:
        require_open(self._closed)
        copy = OrtCache(self.spec, self._layers, self._variants)
        copy._room = list(self._room)
        copy._states = [at.blocks.moved(block, room) for (at, block), room in self._with_room()]
        copy._peak = copy._allocated()
        return copy

    def _with_room(self) -> Iterator[tuple[tuple[Layer, ByteArray], int]]:
        return zip(self._held(), self._room, strict=True)

    def reset(self) -> None:
        require_open(self._closed)
        self._empty()

    def close(self) -> None:
        self._closed = True
        self._states = []

    def dump_bytes(self) -> bytes:
        require_open(self._closed)
        return pack_dump(self.spec, [at.blocks.read(block) for at, block in self._held()])


def _pages_read(spec: LayerSpec, visible: int, length: int) -> int:
    """Page and KV head pairs that a query of this visible length reads."""
    tokens, end = spec.page_tokens, 0
    if visible > spec.sinks:
        end = min(-(-(visible - spec.sinks) // tokens), spec.sealed(length))
    first = max(0, visible - spec.sinks - spec.span) // tokens if spec.span else 0
    return spec.kv_heads * max(0, end - first)


def _layer_bytes(at: Layer, block: ByteArray) -> dict[str, int]:
    """Bytes of a block by part; what is left of it is reserved."""
    spec, length = at.spec, at.blocks.length(block)
    row = 4 * spec.kv_heads * spec.head_dim
    sinks, sealed = min(length, spec.sinks), spec.sealed(length)
    pages = at.blocks.held_pages(block)
    held = {part: size * pages for part, size in PageLayout(spec).parts.items()}
    frozen = [spec.key_centre, spec.value_centre].count("frozen") if sealed else 0
    held["means"] = held.get("means", 0) + frozen * row // 2
    held["sinks"] = sinks * row
    held["residual"] = (length - sinks - sealed * spec.page_tokens) * row
    held["headers"] = held.get("headers", 0) + _BLOCK_HEADER
    held["reserved"] = len(block) - sum(held.values())
    return held
