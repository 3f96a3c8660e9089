"""What a codec costs and loses on a data set, and what baselines must show before they are judged.

All figures in float64. Sinks are exact for every arm and left out of the bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import KvassayError
from ..protocol import FloatArray
from ..vector_codec import VectorCodec
from .data import SINKS, DataSet, synthetic

Doubles = NDArray[np.float64]
_TOP: int = 10


@dataclass(frozen=True)
class Figures:
    """One arm on one data set.

    page_bits, all_in_bits: as `Encoded` has them. nmse: |x - x_hat|^2 / |x|^2 over everything.
    cosine_error: mean of 1 - cosine. For keys: score_error is the RMS error of scores over their
    standard deviation along the keys; attention_kl and its median in nats, exact attention first;
    top10 the share of the ten largest scores that stay among them. For values: output_error is the
    relative RMS error of the output under exact attention.
    loses_to: an arm of no more page bits and less attention_kl (keys) or nmse (values).
    """

    codec: str
    bits: float
    role: str
    data: str
    digest: str
    page_bits: float
    all_in_bits: float
    nmse: float
    cosine_error: float
    score_error: float | None = None
    attention_kl: float | None = None
    attention_kl_median: float | None = None
    top10: float | None = None
    output_error: float | None = None
    loses_to: str | None = None

    @property
    def loss(self) -> float:
        """The figure that arms are ranked by."""
        return self.nmse if self.attention_kl is None else self.attention_kl

    @property
    def label(self) -> str:
        """`kivi 2`."""
        return f"{self.codec} {self.bits:g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def measure(codec: VectorCodec, data: DataSet) -> Figures:
    """The figures of a codec; it learns from `data.learn`, never from what it is measured on."""
    key = codec.role == "key"
    whole = data.k if key else data.v
    x = whole[SINKS:]
    encoded = codec.fit((data.learn if key else data.values_learn)[SINKS:]).encode(x)
    y = encoded.decode().astype(np.float64)
    figures = Figures(
        codec=codec.name,
        bits=codec.bits,
        role=codec.role,
        data=data.name,
        digest=data.digest,
        page_bits=encoded.page_bits,
        all_in_bits=encoded.all_in_bits,
        nmse=float(np.square(x - y).sum() / np.square(x.astype(np.float64)).sum()),
        cosine_error=_cosine_error(x.astype(np.float64), y),
    )
    scores = _scores(data.q, data.k)
    if not key:
        return replace(figures, output_error=_output_error(scores, data.v, y))
    found = np.concatenate([scores[..., :SINKS], encoded.score(data.q)], axis=-1)
    kl = _attention_kl(scores, found, data.head_dim)
    sealed, guessed = scores[..., SINKS:], found[..., SINKS:]
    return replace(
        figures,
        score_error=float(np.sqrt(np.square(sealed - guessed).mean() / sealed.var(axis=-1).mean())),
        attention_kl=float(kl.mean()),
        attention_kl_median=float(np.median(kl)),
        top10=_top_overlap(sealed, guessed),
    )


def ranked(arms: Sequence[Figures]) -> list[Figures]:
    """Arms of one data set by page bits, each with an arm that it loses to, if there is one."""
    ordered = sorted(arms, key=lambda arm: (arm.page_bits, arm.loss))
    out = []
    for arm in ordered:
        better = [
            other for other in ordered if other.page_bits <= arm.page_bits and other.loss < arm.loss
        ]
        best = min(better, key=lambda other: other.loss, default=None)
        out.append(replace(arm, loses_to=best.label if best else None))
    return out


def check_baselines(codecs: Mapping[str, VectorCodec]) -> None:
    """Raise KvassayError where a baseline does not do what its name says.

    fp16 must return the fp16 numbers; q8_0 must use its levels: more than 4 bits could tell apart
    in a block; kivi must quantize keys that arrive bit by bit: no more tokens exact than a group
    that is not full has, and no more levels in a group than its bits have.
    """
    for codec in codecs.values():
        x = synthetic("gaussian", codec.head_dim, tokens=132, heads=1).k[:, 0]
        if codec.name == "fp16":
            _require(codec, bool((codec.encode(x).decode() == _as_fp16(x)).all()), "returns others")
        if codec.name == "q8_0":
            blocks = codec.encode(x).decode().reshape(-1, 32)
            levels = float(np.median([len(np.unique(block)) for block in blocks]))
            _require(codec, levels > 16, f"uses {levels:g} levels in a block of 32")
        if codec.name == "kivi" and codec.role == "key":
            for tokens in (40, 64, 129):
                y = codec.encode(x[:tokens]).decode()
                exact = int((y == _as_fp16(x[:tokens])).all(axis=1).sum())
                levels = max(len(np.unique(column)) for column in y[:32].T)
                _require(codec, exact <= tokens % 32, f"keeps {exact} of {tokens} tokens as fp16")
                _require(codec, levels <= 2**codec.bits, f"has {levels} levels in a group")


def _require(codec: VectorCodec, good: bool, what: str) -> None:
    if not good:
        raise KvassayError(
            f"baseline {codec.name} at {codec.bits:g} bits {what}: it is not what it says, so no "
            f"figure is compared with it; repair the codec"
        )


def _as_fp16(x: FloatArray) -> FloatArray:
    return x.astype(np.float16).astype(np.float32)


def _scores(q: FloatArray, k: FloatArray) -> Doubles:
    """(n, heads, tokens)."""
    rows = q.astype(np.float64).swapaxes(0, 1) @ k.astype(np.float64).transpose(1, 2, 0)
    return np.asarray(rows.swapaxes(0, 1))


def _log_softmax(scores: Doubles, d: int) -> Doubles:
    logits = scores / np.sqrt(d)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def _attention_kl(exact: Doubles, found: Doubles, d: int) -> Doubles:
    """KL(exact || found) in nats, (n, heads)."""
    p, q = _log_softmax(exact, d), _log_softmax(found, d)
    return np.asarray(np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0))


def _output_error(scores: Doubles, v: FloatArray, decoded: Doubles) -> float:
    weights = np.exp(_log_softmax(scores, v.shape[-1])).swapaxes(0, 1)
    exact = weights @ v.astype(np.float64).swapaxes(0, 1)
    error = weights[..., SINKS:] @ (decoded - v[SINKS:]).swapaxes(0, 1)
    return float(np.sqrt(np.square(error).sum() / np.square(exact).sum()))


def _cosine_error(x: Doubles, y: Doubles) -> float:
    lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    both = lengths > 0
    return float(1 - ((x * y).sum(axis=-1)[both] / lengths[both]).mean()) if both.any() else 0.0


def _top_overlap(exact: Doubles, found: Doubles) -> float:
    mine = np.argpartition(exact, -_TOP, axis=-1)[..., -_TOP:]
    theirs = np.argpartition(found, -_TOP, axis=-1)[..., -_TOP:]
    return float((mine[..., :, np.newaxis] == theirs[..., np.newaxis, :]).any(-1).mean())
