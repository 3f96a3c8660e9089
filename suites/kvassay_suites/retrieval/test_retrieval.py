"""The tasks of the suite as tests, and the suite's own figures on data whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from kvassay.judging.gate import Question, judge
from kvassay.presets import STORED_MODES
from kvassay.records import Record
from kvassay.retrieval import VectorCode, load_scorer
from kvassay.suite import Request, Target, Task

from ..plugin import check_task
from . import measure, suite
from .__main__ import Row, table
from .contenders import Contender
from .data import F32, exact, isotropic, make, recall

__all__ = ["suite"]

TARGET = Target("reference", "scalar")


def test_task(kvassay_task: Task) -> None:
    for record in check_task(kvassay_task):
        if record.check == "retrieval.mismatches":
            assert record.value == 0, record.detail
        if record.check == "retrieval.bytes":
            assert record.value <= 1, record.detail


def small() -> tuple[F32, F32]:
    given = isotropic(1500, 64)
    return given.x, given.q[:40]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    given = make("isotropic", *small())
    return [
        record
        for bits in (2, 3, 4)
        for record in measure.recall_of("reference", "scalar", given, bits, STORED_MODES)
    ]


def test_codes_alone_are_rejected_by_name_and_re_ranks_pass(
    records: list[Record],
) -> None:
    question = Question("default", (TARGET,), STORED_MODES, ("retrieval",))
    judgement = judge(records, question)
    states = {
        verdict.preset: {o.rule.name: o.state for o in verdict.outcomes}["retrieval.recall"]
        for verdict in judgement.verdicts
    }
    assert states == {
        **{f"stored-{bits}": "reject" for bits in (2, 3, 4)},
        **{f"stored-{bits}-rerank": "pass" for bits in (2, 3, 4)},
        "stored-sq8": "not measured",
    }
    assert judgement.exit_status == 1


def test_a_rejected_mode_is_told_what_would_pass(records: list[Record]) -> None:
    for record in records:
        if record.preset == "stored-4":
            price = record.detail["passes"]
            assert price["smallest_rerank"] in measure.LADDER
            assert price["rerank_recall"] >= measure.WANTED
            assert price["sq8_recall"] > record.value
            assert price["rerank_bytes_a_vector"] == 64 * 4 // 8 + 4 + 4 * 64
            told = f"a re-rank of {price['smallest_rerank']} at 292 bytes"
            assert told in record.subject


def test_caches_are_not_judged_by_the_rules_of_stored_vectors(
    records: list[Record],
) -> None:
    judgement = judge(records, Question("default", (TARGET,), ("turbo",), ("retrieval",)))
    states = {o.rule.name: o.state for v in judgement.verdicts for o in v.outcomes}
    assert states["retrieval.recall"] == states["retrieval.mismatches"] == "does not apply"


def test_modes_have_tasks_and_caches_cost_none() -> None:
    native = Target("native", "scalar")
    asked = suite.tasks(Request((TARGET, native), STORED_MODES))
    assert {task.function.partition(":")[2] for task in asked} == {
        *("list_scorers", "bits", "bytes_held", "recall", "cost"),
    }
    caches = suite.tasks(Request((TARGET, native), ("turbo",)))
    assert [task.label for task in caches] == [
        "scorers",
        "bytes a vector",
        "bytes a vector",
        "bits",
    ]
    assert [task.label for task in suite.tasks(Request((Target("mine", "x"),), ("turbo",)))] == [
        "scorers"
    ]


def test_exact_answers_and_recall() -> None:
    x, q = small()
    best = exact(x, q)
    assert (best[:, 0] == np.argmax(q.astype(np.float64) @ x.T.astype(np.float64), axis=1)).all()
    assert recall(best, best) == 1
    assert recall(best[:, ::-1][:, :5], best) == 0.5
    assert recall(best + 10_000, best) == 0


def test_a_scorer_that_is_wrong_in_one_bit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = load_scorer("native", "scalar")
    kind = type(right)
    encode = kind.encode

    def wrong(self: object, code: VectorCode, *rest: object) -> tuple[object, F32]:
        codes, scales = encode(self, code, *rest)  # type: ignore[arg-type]
        if code.dim == 200:
            scales[3] = np.nextafter(scales[3], np.float32(9))
        return codes, scales

    monkeypatch.setattr(kind, "encode", wrong)
    (record,) = measure.bits("native", "scalar")
    assert record.value > 0
    assert record.detail["first"].startswith("200 x 2 bits, calibration 5-95")


def test_rows_that_ours_loses_are_printed_and_marked() -> None:
    def row(name: str, ours: bool, found: float, times: float) -> Row:
        contender = Contender(name, 4, lambda dim: dim / 2, lambda x: lambda q: exact(x, q), ours)
        return Row(contender, lambda q: exact(q, q), "", found, [times] * 3, [times] * 3)

    absent = Row(Contender("absent", 4, lambda dim: 0.0, lambda x: lambda q: exact(x, q)))
    absent.reason = "not installed"
    rows = [row("ours", True, 0.8, 2e-6), row("fast", False, 0.9, 1e-6), absent]
    text = "\n".join(table("data", rows, 100, 64))
    assert "| fast | 32 | 0.9000 (ours loses) | 1.0 | 3.2 | 0.50 (ours loses) |" in text
    assert "| absent | not measured: not installed |" in text
