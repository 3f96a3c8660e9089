"""What quantization costs and what it saves: the break-even model, measured and predicted.

Predicted with the formulas of `kvassay.costs` from bytes, operations and the ceilings of the
machine (`ceilings`); measured from the times of `steps`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvassay.page.costs import Costs, blocked_work, payback
from kvassay.records import Record

from .ceilings import Ceilings, ceilings
from .turns import Series
from .work import BASELINE, SHORT, Owner

_METHODS: Final[Mapping[str, str]] = {
    "query_transform": "attention over one short page less that of fp16",
    "break_even": "the transform over what each token's attention takes less than with fp16",
    "payback": "what appending all tokens takes more than with fp16, over what a step saves",
    "transform_cost": "the transform over what a step saves before it",
}


@dataclass(frozen=True)
class Economy:
    """One preset beside fp16 at one length; times in nanoseconds.

    `transform` is what a step costs more than fp16 where there is almost nothing to scan: queries
    transformed and rounded, outputs transformed back. `saved` is what a step at this length takes
    less than fp16 in spite of it. `append` is what a token's append costs more.
    """

    transform: float
    saved: float
    append: float
    slope: float
    base_slope: float
    tokens: int

    @classmethod
    def of(cls, whose: Owner, preset: str, timed: Series, base: Series) -> Economy:
        """From medians of differences in the same rounds."""

        def difference(name: str) -> float:
            pairs = zip(timed.samples[name], base.samples[name], strict=True)
            return statistics.median(a - b for a, b in pairs)

        length = whose.tokens - SHORT
        return cls(
            transform=difference("short attend"),
            saved=-difference("attend"),
            append=difference("append"),
            slope=(timed.median("attend") - timed.median("short attend")) / length,
            base_slope=(base.median("attend") - base.median("short attend")) / length,
            tokens=whose.tokens,
        )

    @property
    def transform_cost(self) -> float:
        """Transform over the time that reading fewer bytes saves; infinite where nothing is."""
        gross = self.saved + self.transform
        if gross <= 0:
            return math.inf
        return max(0.0, self.transform) / gross

    @property
    def break_even(self) -> float:
        """Tokens from which a step is faster than with fp16; infinite if from none."""
        gain = self.base_slope - self.slope
        return SHORT + max(0.0, self.transform) / gain if gain > 0 else math.inf

    @property
    def payback(self) -> float:
        """Decode steps at this length that pay for having appended all of it."""
        if self.saved <= 0:
            return math.inf
        return max(0.0, self.append) * self.tokens / self.saved

    def records(
        self, whose: Owner, preset: str, count: int, shared: Mapping[str, Any], judged: bool
    ) -> list[Record]:
        """Transform, where the preset gets faster, when it is paid back; and, where the length is
        the one that is judged, the transform's cost."""
        found = ceilings()
        predicted = predict(whose, preset, found)
        detail = {
            **shared,
            "transform_us": self.transform / 1e3,
            "saved_us": self.saved / 1e3,
            "append_us": self.append / 1e3,
            "ns_a_token": self.slope,
            "fp16_ns_a_token": self.base_slope,
            "predicted": predicted,
        }
        figures = [
            ("query_transform", self.transform / 1e3, "us more than fp16"),
            ("break_even", self.break_even, "tokens of context"),
            ("payback", self.payback, "generated tokens"),
        ]
        if judged:
            figures.append(("transform_cost", self.transform_cost, "of the time saved"))
        return [
            whose.record(name, preset, v, unit, count, {**detail, "method": _METHODS[name]})
            for name, v, unit in figures
        ]


def predict(whose: Owner, preset: str, found: Ceilings) -> dict[str, float]:
    """Break-even by the formulas: bytes at the read bandwidth, operations at the peak."""
    spec = whose.shape.spec(preset)
    costs, plain = Costs.of(spec), Costs.of(whose.shape.spec(BASELINE))
    seconds = 1 / found.operations
    per_token = plain.fp16(1) - costs.layers[0].page / spec.page_tokens
    rounds = spec.rounds if spec.layer_specs[0].keys.rotated else 0
    transforms = 2 * spec.query_heads * blocked_work(spec.head_dim, rounds)
    saved = costs.saved(whose.tokens)
    return {
        "break_even": transforms * seconds * found.bandwidth / per_token,
        "payback": payback(
            costs.append_ops() * whose.tokens, seconds, float(saved), found.bandwidth
        ),
        "bandwidth": found.bandwidth,
        "operations": found.operations,
    }
