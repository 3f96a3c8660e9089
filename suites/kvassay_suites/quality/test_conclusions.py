"""What is concluded from the items of all families: harm that is planted is found, and no other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kvassay.errors import KvassayError
from kvassay.judging.rules import Outcome, evaluate, rulebook
from kvassay.records import Record
from kvassay.suite import Target
from kvassay_suites.quality import suite
from kvassay_suites.quality.measured import REAL, Origin
from kvassay_suites.quality.tasks import FAMILIES, SAFETY, SHIP_FAMILIES
from kvassay_suites.quality.tasks.__main__ import tables
from kvassay_suites.quality.tasks.measure import CHECK

LEADER, FOLLOWER = Target("native", "avx2"), Target("reference", "scalar")
Columns = dict[str, list[Any]]
Change = Callable[[str, Columns], None]


def passes(change: Change | None = None, preset: str = "turbo") -> list[Record]:
    """Records of all conversations of an arm with a little noise and no harm.

    Full precision is right in nine of ten items, except in chat, where it is at chance. `change`
    edits the columns of a conversation in place.
    """
    random = np.random.default_rng(0)
    records = []
    for family in FAMILIES.values():
        for number, talk in enumerate(family.conversations):
            n = len(talk.items)
            nll = random.uniform(20.0, 40.0, n)
            right = [
                int(k % 10 > 0) if family.name != "chat" else int(k % 4 == 0) for k in range(n)
            ]
            choice = [0 if found else 1 for found in right]
            columns: Columns = {
                "tokens": [10] * n,
                "nll": list(nll * (1.0 + 0.01 * random.standard_normal(n))),
                "full_nll": list(nll),
                "kl": list(random.uniform(0.0, 0.01, n)),
                "top1": [1.0] * n,
                "right": list(right),
                "full_right": list(right),
                "choice": list(choice),
                "full_choice": list(choice),
                "full_margin": [2.0] * n,
                "chance": [0.25] * n,
            }
            if change is not None:
                change(family.name, columns)
            detail = {
                **{"family": family.name, "digest": talk.digest, "items": columns},
                **{"text": f"tokens of {family.name} {number}", "model_hash": "m"},
            }
            origin = Origin(LEADER, preset, REAL)
            subject = f"{family.name} {number}"
            records.append(origin.record(CHECK, 0.0, "relative", 10 * n, subject, **detail))
    return records


def outcome(rule: str, records: Sequence[Record]) -> Outcome:
    return evaluate(rulebook().rule(rule), records)


def states(records: Sequence[Record]) -> dict[str, str]:
    names = ("chat_nll_rise", "task_harm", "task_kl", "safety_agreement")
    return {name: outcome(f"quality.{name}", records).state for name in names}


def multiply(family: str, column: str, factor: float) -> Change:
    def change(name: str, columns: Columns) -> None:
        if name == family:
            columns[column] = [factor * value for value in columns[column]]

    return change


def only(family: str, edit: Callable[[Columns], None]) -> Change:
    def change(name: str, columns: Columns) -> None:
        if name == family:
            edit(columns)

    return change


def test_an_arm_without_harm_passes_every_rule() -> None:
    concluded = suite.conclude(passes())
    assert set(states(concluded).values()) == {"pass"}
    harm = {r.subject: r for r in concluded if r.check == "quality.task_harm"}
    assert set(harm) == set(SHIP_FAMILIES)
    assert harm["chat"].detail["metric"] == "nll"
    assert {harm[name].detail["metric"] for name in SHIP_FAMILIES[1:]} == {"right or wrong"}


def test_chat_that_gets_unlikelier_is_rejected_twice() -> None:
    concluded = suite.conclude(passes(multiply("chat", "nll", 1.1)))
    found = states(concluded)
    assert (found["chat_nll_rise"], found["task_harm"]) == ("reject", "reject")
    worst = outcome("quality.task_harm", concluded).records[0]
    assert (worst.subject, worst.detail["budget"]) == ("chat", 0.02)
    assert worst.value == pytest.approx(8e-4)  # the least p-value times eight families


def test_a_rise_within_the_budget_is_no_harm_but_may_miss_the_bound_of_chat() -> None:
    found = states(suite.conclude(passes(multiply("chat", "nll", 1.019))))
    assert found["task_harm"] == "pass"
    assert found["chat_nll_rise"] == "reject"


def test_lost_answers_are_harm_where_full_precision_knows_them() -> None:
    def forget(columns: Columns) -> None:
        columns["right"] = [int(k % 10 > 3) for k in range(len(columns["right"]))]

    concluded = suite.conclude(passes(only("retrieval", forget)))
    rejected = outcome("quality.task_harm", concluded)
    assert rejected.state == "reject"
    assert rejected.records[0].subject == "retrieval"
    score = next(
        r for r in concluded if (r.check, r.subject) == ("quality.task_score", "retrieval")
    )
    assert score.value == pytest.approx(0.6)
    assert score.detail["drop"] == pytest.approx(0.3)
    low, high = score.detail["drop_interval"]
    assert 0.1 < low < 0.3 < high < 0.5


def test_a_family_at_chance_is_uninformative_and_judged_by_its_likelihood() -> None:
    """Lost answers there are no evidence."""

    def forget(columns: Columns) -> None:
        columns["right"] = [0] * len(columns["right"])

    concluded = suite.conclude(passes(only("chat", forget)))
    assert states(concluded)["task_harm"] == "pass"
    full = {r.subject: r for r in concluded if r.check == "quality.task_full_score"}
    assert {name for name, r in full.items() if not r.detail["informative"]} == {"chat"}
    assert full["chat"].backend == "full precision"
    assert full["code"].value == pytest.approx(0.87, abs=0.02)


def test_one_family_far_off_is_seen_behind_the_others() -> None:
    concluded = suite.conclude(passes(multiply("code", "kl", 100.0)))
    rejected = outcome("quality.task_kl", concluded)
    assert (rejected.state, rejected.records[0].subject) == ("reject", "code")


def test_decisions_that_flip_are_safety_drift() -> None:
    def flip(columns: Columns) -> None:
        columns["choice"][::4] = [2] * len(columns["choice"][::4])

    assert states(suite.conclude(passes(only(SAFETY, flip))))["safety_agreement"] == "reject"

    def flip_unclear(columns: Columns) -> None:
        flip(columns)
        columns["full_margin"][::4] = [0.1] * len(columns["choice"][::4])

    concluded = suite.conclude(passes(only(SAFETY, flip_unclear)))
    assert states(concluded)["safety_agreement"] == "pass"
    record = next(r for r in concluded if r.check == "quality.safety_agreement")
    assert record.detail["every_decision"] < 0.8


def test_a_missing_conversation_is_never_a_pass() -> None:
    records = [r for r in passes() if r.subject != "turns 1"]
    concluded = suite.conclude(records)
    assert states(concluded)["task_kl"] == "not measured"
    assert states(concluded)["task_harm"] == "not measured"
    assert states(concluded)["chat_nll_rise"] == "pass"
    nothing = suite.conclude([r for r in passes() if not r.subject.startswith("chat")])
    assert states(nothing)["chat_nll_rise"] == "not measured"


def test_a_conversation_of_another_version_is_missing() -> None:
    records = passes()
    records[0].detail["digest"] = "older"  # type: ignore[index]
    assert states(suite.conclude(records))["chat_nll_rise"] == "not measured"


def test_not_a_number_is_never_a_pass() -> None:
    concluded = suite.conclude(passes(multiply("limits", "kl", math.nan)))
    assert states(concluded)["task_kl"] == "reject"


def test_nothing_measured_concludes_nothing() -> None:
    assert suite.conclude([]) == []


def test_arms_that_read_other_tokens_are_refused() -> None:
    other = passes(preset="kivi")
    other[3].detail["text"] = "other tokens"  # type: ignore[index]
    with pytest.raises(KvassayError, match="different tokens or models"):
        suite.conclude(passes() + other)


@pytest.mark.parametrize(("differing", "copied"), [(0, True), (1, False)])
def test_an_equal_backend_takes_the_conclusions_over(differing: int, copied: bool) -> None:
    origin = Origin(FOLLOWER, "turbo", REAL)
    detail = {"compared_with": "native avx2", "with_itself": False}
    shared = origin.record("shared_pass", differing, "values", 1000, "fixed text", **detail)
    concluded = suite.conclude([*passes(), shared])
    theirs = [r for r in concluded if r.backend == "reference"]
    assert bool(theirs) == copied
    assert all(r.detail["shared_with"] == "native avx2" for r in theirs)
    if copied:
        assert set(states(theirs).values()) == {"pass"}


def test_tables_show_every_family_and_arm_and_what_was_not_measured() -> None:
    partial = [r for r in passes(preset="kivi") if r.subject != "code 1"]
    text = tables([*passes(), *partial])
    assert text.count("| `turbo` |") == len(FAMILIES) + 1  # and a line of its rules
    assert text.count("| `kivi` |") == len(FAMILIES)
    assert "| chat | 32 | 0.25 | no |" in text
    (judged,) = (line for line in text.splitlines() if line.startswith("| `kivi`"))
    assert judged.count("not measured") == 2
    with pytest.raises(KvassayError, match="run kvassay quality --scope full"):
        tables([])
