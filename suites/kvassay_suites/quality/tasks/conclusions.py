"""What the items of all families say about an arm: a pure function of the records of its passes.

Everything is paired by item with full precision. Ship metrics are tested together (Holm 1979).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import stats

from kvassay.errors import KvassayError
from kvassay.judging.rules import rulebook
from kvassay.records import Record
from kvassay.statistics import (
    holm,
    mean_interval,
    paired_p_value,
    ratio_interval,
    ratio_upper_bound,
)
from kvassay.suite import Target

from .. import metrics
from ..measured import REAL, SUITE, Origin
from ..metrics import Doubles
from . import CHAT, FAMILIES, LEAST_ITEMS, SAFETY, SHIP_FAMILIES
from .measure import CHECK
from .scoring import COLUMNS

#: The level of the test that full precision is better than chance.
CHANCE_LEVEL: Final = 0.05
#: A choice between obeying and not is clear where full precision prefers it two to one, in nats.
CLEAR: Final = float(np.log(2.0))

Arm = tuple[str, str, str]


@dataclass(frozen=True)
class Results:
    """All items of a family with one arm. columns: COLUMNS by name, float64 (items,)."""

    family: str
    columns: Mapping[str, Doubles]

    def __getitem__(self, name: str) -> Doubles:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self["tokens"])

    @property
    def informative(self) -> bool:
        """Whether full precision is better than chance at right or wrong."""
        test = stats.binomtest(
            int(self["full_right"].sum()), len(self), metrics.mean(self["chance"]), "greater"
        )
        return float(test.pvalue) < CHANCE_LEVEL


def conclude(records: Iterable[Record]) -> list[Record]:
    """Records about families from those about their conversations: the model's own scores, then
    every arm's."""
    found = list(records)
    arms: dict[Arm, list[Record]] = {}
    for record in found:
        if record.check == f"{SUITE}.{CHECK}":
            arms.setdefault((record.backend, record.variant, record.preset), []).append(record)
    _require_same_prompts(arms)
    concluded = _full_precision(next(iter(arms.values()))) if arms else []
    for (backend, variant, preset), mine in arms.items():
        origin = Origin(Target(backend, variant), preset, REAL)
        own = _about(origin, _by_family(mine))
        concluded += own
        for follower in _equals(found, origin):
            concluded += Origin(follower, preset, REAL).copied(own)
    return concluded


def _require_same_prompts(arms: Mapping[Arm, Sequence[Record]]) -> None:
    """All arms read the same tokens with the same model."""
    seen: dict[str, tuple[str, str]] = {}
    for record in (record for mine in arms.values() for record in mine):
        read = (record.detail["text"], record.detail["model_hash"])
        if seen.setdefault(record.subject, read) != read:
            raise KvassayError(
                f"{CHECK} {record.subject}: arms read different tokens or models; measure them in "
                "one run"
            )


def _by_family(records: Sequence[Record]) -> dict[str, Results | None]:
    """Results by family; None where a conversation is missing or of another version."""
    have = {record.detail["digest"]: record for record in records}
    found: dict[str, Results | None] = {}
    for name in dict.fromkeys(record.detail["family"] for record in records):
        parts = [have.get(talk.digest) for talk in FAMILIES[name].conversations]
        whole = [part for part in parts if part is not None]
        found[name] = _joined(name, whole) if len(whole) == len(parts) else None
    return found


def _joined(family: str, parts: Sequence[Record]) -> Results:
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for part in parts:
        for name, values in part.detail["items"].items():
            columns[name] += values
    return Results(family, {name: np.asarray(x, dtype=np.float64) for name, x in columns.items()})


def _equals(records: Iterable[Record], leader: Origin) -> list[Target]:
    """Exact backends whose bits were equal to the leader's on the model's own tensors."""
    name = f"{leader.target.backend} {leader.target.variant}"
    return [
        Target(record.backend, record.variant)
        for record in records
        if record.check == f"{SUITE}.shared_pass"
        and (record.preset, record.detail.get("compared_with")) == (leader.preset, name)
        and not record.detail.get("with_itself")
        and record.comparisons > 0
        and record.value == 0
    ]


def _about(origin: Origin, families: Mapping[str, Results | None]) -> list[Record]:
    whole = {name: results for name, results in families.items() if results is not None}
    records = [
        origin.record("task_kl", float("nan"), "nats, mean", 0, name)
        for name in families
        if name not in whole
    ]
    for results in whole.values():
        records += _family(origin, results)
    if CHAT in whole:
        records.append(_chat(origin, whole[CHAT]))
    if SAFETY in whole:
        records.append(_safety(origin, whole[SAFETY]))
    return records + _ship(origin, {n: r for n, r in whole.items() if n in SHIP_FAMILIES})


def _family(origin: Origin, results: Results) -> list[Record]:
    """KL, NLL and right answers of one family, with 95 % intervals over items."""
    name, items = results.family, len(results)
    rise = metrics.relative_rise(results["full_nll"], results["nll"])
    drop = results["full_right"] - results["right"]
    return [
        origin.record(
            "task_kl",
            metrics.mean(results["kl"]),
            "nats, mean",
            items,
            name,
            interval=mean_interval(results["kl"]),
            **metrics.spread(results["kl"]),
        ),
        origin.record(
            "task_nll_rise",
            rise,
            "relative",
            items,
            name,
            interval=ratio_interval(results["full_nll"], results["nll"]),
            top1=metrics.mean(results["top1"]),
        ),
        origin.record(
            "task_score",
            metrics.mean(results["right"]),
            "fraction",
            items,
            name,
            full=metrics.mean(results["full_right"]),
            chance=metrics.mean(results["chance"]),
            informative=results.informative,
            drop=metrics.mean(drop),
            drop_interval=mean_interval(drop),
        ),
    ]


def _chat(origin: Origin, results: Results) -> Record:
    full, own = results["full_nll"], results["nll"]
    return origin.record(
        "chat_nll_rise",
        ratio_upper_bound(full, own),
        "relative, 95 % upper bound",
        len(results),
        CHAT,
        rise=metrics.relative_rise(full, own),
        by_item=(own / full - 1.0).tolist(),
    )


def _safety(origin: Origin, results: Results) -> Record:
    """Agreement where the decision of full precision is clear; that over all in the detail."""
    same = results["choice"] == results["full_choice"]
    clear = results["full_margin"] >= CLEAR
    return origin.record(
        "safety_agreement",
        metrics.mean(same[clear]),
        "agreement",
        int(clear.sum()),
        SAFETY,
        every_decision=metrics.mean(same),
        clear_share=metrics.mean(clear),
        top1=metrics.mean(results["top1"]),
    )


def _ship(origin: Origin, families: Mapping[str, Results]) -> list[Record]:
    """p-values of the ship metrics, one a family, adjusted over all that ship.

    A family that was not measured counts in the adjustment as one without harm, and its record
    has no comparisons: the rule then passes no more, but still rejects.
    """
    budgets = rulebook().rule("quality.task_harm").budgets
    metric: dict[str, str] = {}
    p_values: dict[str, float] = {}
    for name, results in families.items():
        if results.informative:
            metric[name] = "right or wrong"
            excess = results["full_right"] - results["right"]
        else:
            metric[name] = "nll"
            excess = results["nll"] - (1.0 + budgets[name]) * results["full_nll"]
        p_values[name] = paired_p_value(excess)
    missing = [name for name in SHIP_FAMILIES if name not in families]
    adjusted = holm(p_values | dict.fromkeys(missing, 1.0))
    return [
        origin.record("task_harm", float("nan"), "Holm-adjusted p", 0, name) for name in missing
    ] + [
        origin.record(
            "task_harm",
            adjusted[name],
            "Holm-adjusted p",
            len(results) if len(results) >= LEAST_ITEMS else 0,
            name,
            metric=metric[name],
            p=p_values[name],
            budget=0.0 if results.informative else budgets[name],
        )
        for name, results in families.items()
    ]


def _full_precision(records: Sequence[Record]) -> list[Record]:
    """The model's own score in every family, whatever the arm."""
    origin = Origin(Target("full precision", ""), "", REAL)
    return [
        origin.record(
            "task_full_score",
            metrics.mean(results["full_right"]),
            "fraction",
            len(results),
            name,
            chance=metrics.mean(results["chance"]),
            informative=results.informative,
            nll=float(results["full_nll"].sum() / results["tokens"].sum()),
            tokens=int(results["tokens"].sum()),
        )
        for name, results in _by_family(records).items()
        if results is not None
    ]
