"""Whether two exact backends may share a pass: equal bits on the model's own tensors.

An exact backend promises the bits of the numeric contract, so one teacher-forced pass can stand
for all of them. That promise is checked here on captured queries, keys and values before a figure
is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.models import Capture
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.suite import Target

from .measured import REAL, Origin, load
from .real_model import cache_spec, spread_layers, tensors

LAYERS: Final = 3
#: Odd, so that sampled queries meet every phase of a page filling up.
EVERY: Final = 31


@dataclass(frozen=True)
class Bits:
    """Float32 bits of attention outputs and scores, and the bytes of the whole state."""

    outputs: NDArray[np.uint32]
    scores: NDArray[np.uint32]
    dump: NDArray[np.uint8]

    @property
    def size(self) -> int:
        """Float32 values and bytes together."""
        return self.outputs.size + self.scores.size + self.dump.size

    def differing(self, other: Bits) -> dict[str, int]:
        """How many float32 values and bytes differ, by what they are of."""
        return {
            "outputs": _differing(self.outputs, other.outputs),
            "scores": _differing(self.scores, other.scores),
            "dump": _differing(self.dump, other.dump),
        }


def sample_bits(
    backend: Backend, preset: str, captured: Capture, threads: int = 1, **fields: int
) -> Bits:
    """Append a few captured layers token by token, attend and score now and then, dump."""
    layers = spread_layers(captured.config.layers, LAYERS)
    overrides = captured.config.shape.get("layer_overrides", {})
    shape: dict[str, Any] = {**fields, "layers": len(layers)}
    shape["layer_overrides"] = {
        number: overrides[layer] for number, layer in enumerate(layers) if layer in overrides
    }
    spec = cache_spec(preset, captured, **shape)
    outputs: list[NDArray[np.float32]] = []
    scores: list[NDArray[np.float32]] = []
    with backend.prepare(spec, threads=threads) as cache:
        for number, layer in enumerate(layers):
            x = tensors(captured, layer)
            last = len(x.k) - 1
            for t in range(len(x.k)):
                cache.append(number, x.k[t : t + 1], x.v[t : t + 1])
                if t % EVERY == EVERY - 1 or t == last:
                    outputs.append(cache.attend(number, x.q[t]).ravel())
                    scores.append(cache.scores(number, x.q[t]).ravel())
        dump = cache.dump()
    return Bits(
        np.concatenate(outputs).view(np.uint32),
        np.concatenate(scores).view(np.uint32),
        np.frombuffer(dump, dtype=np.uint8),
    )


def share(
    measured: Sequence[Record],
    leader: Target,
    followers: Sequence[tuple[str, str]],
    preset: str,
    captured: Capture,
    subject: str,
    **fields: int,
) -> list[Record]:
    """The leader's records, a `quality.shared_pass` record of every exact backend, and copies of
    the leader's records for those followers whose bits are equal.

    The leader is compared with itself on two threads, which the contract promises to be the same.
    A follower that differs or fails gets no copies: its rules stay unmeasured. A leader that
    promises no bits has its own records alone.
    """
    backend = load(leader)
    if not backend.exact:
        return list(measured)
    mine = sample_bits(backend, preset, captured, **fields)
    again = sample_bits(backend, preset, captured, threads=2, **fields)
    records = list(measured)
    records.append(_shared_pass(Origin(leader, preset, REAL), mine, again, leader, subject))
    for follower in (Target(*names) for names in followers):
        origin = Origin(follower, preset, REAL)
        try:
            theirs = sample_bits(load(follower), preset, captured, **fields)
        except Exception as error:  # of someone else's backend: it must not void the leader's pass
            records.append(_failed(origin, error, leader, subject))
            continue
        record = _shared_pass(origin, mine, theirs, leader, subject)
        records.append(record)
        if record.value == 0:
            records += origin.copied(measured)
    return records


def _shared_pass(origin: Origin, mine: Bits, theirs: Bits, leader: Target, subject: str) -> Record:
    differing = mine.differing(theirs)
    return origin.record(
        "shared_pass",
        sum(differing.values()),
        "values",
        mine.size,
        subject,
        differing=differing,
        compared_with=f"{leader.backend} {leader.variant}",
        with_itself=origin.target == leader,
    )


def _failed(origin: Origin, error: Exception, leader: Target, subject: str) -> Record:
    return origin.record(
        "shared_pass",
        float("nan"),
        "values",
        0,
        subject,
        error=f"{type(error).__name__}: {error}",
        compared_with=f"{leader.backend} {leader.variant}",
    )


def _differing(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    common = min(a.size, b.size)
    return int((a[:common] != b[:common]).sum()) + max(a.size, b.size) - common
