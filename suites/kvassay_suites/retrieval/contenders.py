"""Indexes that are measured side by side, one thread each: ours, TurboVec, FAISS's quantizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.retrieval import Index

from ..peers.protocol import NotMeasured, need
from .data import F32, Found, K

Search = Callable[[F32], Found]
#: Vectors that a quantizer is trained on.
_TRAINING: Final = 1 << 14


@dataclass(frozen=True)
class Contender:
    """An index to build and search. `bytes_of` gives bytes a vector for a dimension, whatever it
    keeps for each vector counted; `bits` groups those of about equal bytes."""

    name: str
    bits: int
    bytes_of: Callable[[int], float]
    build: Callable[[F32], Search]
    ours: bool = False


def contenders(bits: tuple[int, ...] = (4, 2)) -> Iterator[Contender]:
    """All of them, ours first."""
    for b in bits:
        yield Contender(f"kvassay {b} bits", b, _codes(b, 4), _kvassay(b, None), ours=True)
        name = f"kvassay {b} bits, mean"
        yield Contender(name, b, _codes(b, 4), _kvassay(b, "mean"), ours=True)
        yield Contender(f"turbovec {b} bits", b, _codes(b, 4), _turbovec(b))
        if b == 4:
            yield Contender("faiss fast-scan d x 4 bits", b, _codes(4, 0), _fast_scan(1))
            yield Contender("faiss SQ4", b, _codes(4, 0), _scalar("QT_4bit"))
        if b == 2:
            yield Contender("faiss fast-scan d/2 x 4 bits", b, _codes(2, 0), _fast_scan(2))
        yield Contender(f"faiss RaBitQ {b} bits", b, _codes(b, 8), _rabitq(b))
    yield Contender("faiss SQ8", 8, _codes(8, 0), _scalar("QT_8bit"))
    yield Contender("flat float32", 32, _codes(32, 0), _flat)


def _codes(bits: int, extra: int) -> Callable[[int], float]:
    return lambda dim: dim * bits / 8 + extra


def _kvassay(bits: int, kind: str | None) -> Callable[[F32], Search]:
    def build(x: F32) -> Search:
        index = Index(x.shape[1], bits)
        if kind:
            index.calibrate(x[:_TRAINING], kind)
        index.add(x)
        return lambda q: index.search(q, K)[1]

    return build


def _turbovec(bits: int) -> Callable[[F32], Search]:
    def build(x: F32) -> Search:
        index = need("turbovec").TurboQuantIndex(dim=x.shape[1], bit_width=bits)
        index.add(x)
        index.prepare()
        return lambda q: np.asarray(index.search(q, K)[1]).astype(np.int64)

    return build


def _fast_scan(channels: int) -> Callable[[F32], Search]:
    """Product quantization, 4 bits for each group of `channels` channels."""

    def build(x: F32) -> Search:
        dim = x.shape[1]
        return _faiss(lambda faiss: faiss.IndexPQFastScan(dim, dim // channels, 4, 0), x)

    return build


def _scalar(kind: str) -> Callable[[F32], Search]:
    def build(x: F32) -> Search:
        return _faiss(
            lambda faiss: faiss.IndexScalarQuantizer(
                x.shape[1], getattr(faiss.ScalarQuantizer, kind), faiss.METRIC_INNER_PRODUCT
            ),
            x,
        )

    return build


def _rabitq(bits: int) -> Callable[[F32], Search]:
    """Behind a random rotation, as the paper has it; FAISS's own index does not rotate."""

    def build(x: F32) -> Search:
        def make(faiss: Any) -> Any:
            inner = faiss.IndexRaBitQ(x.shape[1], faiss.METRIC_INNER_PRODUCT, bits)
            rotation = faiss.RandomRotationMatrix(x.shape[1], x.shape[1])
            return faiss.IndexPreTransform(rotation, inner)

        return _faiss(make, x)

    return build


def _flat(x: F32) -> Search:
    return _faiss(lambda faiss: faiss.IndexFlatIP(x.shape[1]), x)


def _faiss(make: Callable[[Any], Any], x: F32) -> Search:
    faiss = need("faiss-cpu", "faiss")
    faiss.omp_set_num_threads(1)
    try:
        index = make(faiss)
        index.train(x[:_TRAINING])
        index.add(x)
    except (RuntimeError, TypeError) as error:
        first = (str(error).strip().splitlines() or ["no message"])[-1]
        raise NotMeasured(f"faiss: {first}") from None

    def search(q: F32) -> Found:
        ids: NDArray[np.int64] = index.search(q, K)[1]
        return ids

    return search
