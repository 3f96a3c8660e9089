"""What is measured: shapes, and what is done with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from kvassay.errors import KvassayError
from kvassay.suggest import did_you_mean

Kind = Literal["attend", "scan", "scores", "seal", "append", "transform"]


@dataclass(frozen=True)
class Case:
    """A shape and its work.

    `attend`: the last `queries` of `tokens` cached tokens attend causally. `scan`: inner products
    of one query with all keys, stored at 4 bits where the peer quantizes; searches give their best.
    `scores`: the same for all query heads, in the peer's product type. `seal`: `tokens` tokens go
    into an empty cache in one call. `append`: `queries` tokens go, one a call, into a cache of
    `tokens`. `transform`: the rotation of one token's query heads alone.
    """

    name: str
    kind: Kind
    what: str
    kv_heads: int
    query_heads: int
    head_dim: int
    tokens: int
    queries: int = 1
    plain_bytes: int = 0
    """Bytes that the peer `plain_read` reads for comparison; 0 where it has no part."""

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.query_heads // self.kv_heads


def _decode(d: int, kv_heads: int, query_heads: int, tokens: int) -> Case:
    fp16_bytes = 2 * 2 * kv_heads * d * tokens
    what = f"decode step, d={d}, {kv_heads} KV and {query_heads} query heads, {tokens} tokens"
    name = f"decode-{d}-{tokens}"
    return Case(name, "attend", what, kv_heads, query_heads, d, tokens, plain_bytes=fp16_bytes)


def _scan(name: str, where: str, tokens: int) -> Case:
    what = f"key scan, 4 bits, d=128, one query head, {tokens} tokens, codes in {where}"
    return Case(name, "scan", what, 1, 1, 128, tokens, plain_bytes=tokens * 64)


def _prefill(queries: int) -> Case:
    what = f"prefill, d=128, 8 KV and 32 query heads, {queries} new queries over 4096 tokens"
    return Case(f"prefill-{queries}", "attend", what, 8, 32, 128, 4096 + queries, queries)


CASES: Final = MappingProxyType(
    {
        case.name: case
        for case in (
            _decode(128, 8, 32, 4096),
            _decode(128, 8, 32, 32768),
            _decode(64, 3, 9, 2048),
            _decode(64, 3, 9, 8192),
            _scan("scan-l3", "L3", 1 << 16),
            _scan("scan-dram", "memory", 1 << 21),
            Case("scores", "scores", "q.K^T, d=128, 8 KV and 32 query heads", 8, 32, 128, 4096),
            _prefill(64),
            _prefill(512),
            Case("seal", "seal", "append of 4096 tokens at once, 8 x 128", 8, 32, 128, 4096),
            Case("append", "append", "append of one token, 8 x 128", 8, 32, 128, 4096, 1024),
            Case("transform", "transform", "query transform, 32 x 128", 8, 32, 128, 1),
        )
    }
)


def find_cases(names: Iterable[str]) -> list[Case]:
    """The cases of these names, all for none; KvassayError for a name that is none."""
    wanted = list(names) or list(CASES)
    for name in wanted:
        if name not in CASES:
            raise KvassayError(f"no case {name!r}{did_you_mean(name, CASES)}")
    return [CASES[name] for name in wanted]
