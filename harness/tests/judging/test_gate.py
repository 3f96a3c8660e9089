"""Verdicts, exit status, scopes, roles and stages."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from synthetic import PRESET, STAGES, TARGET, good_records, make, question

from kvassay.errors import RecordError
from kvassay.judging.gate import Judgement, Question, judge
from kvassay.records import Record
from kvassay.suite import Target


def test_all_rules_pass() -> None:
    judgement = judge(good_records(), question())
    assert (judgement.exit_status, judgement.problem) == (0, "")
    verdict = judgement.verdicts[0]
    assert (verdict.decision, verdict.role, verdict.stage) == ("PASS", "product", STAGES[-1])
    assert verdict.named("outside scope") == (
        "quality.chat_nll_rise",
        "quality.task_harm",
        "quality.task_kl",
        "quality.safety_agreement",
        "quality.lane_alarms",
        "quality.arms_unequal",
        "quality.shadow_kl",
        "quality.shadow_layer_kl",
        "quality.transform_share",
        "performance.transform_cost",
        "browser.mismatches",
        "browser.time_ratio",
    )


def test_a_wider_scope_needs_more() -> None:
    for scope, missing in (("full", "quality.chat_nll_rise"), ("browser", "browser.mismatches")):
        judgement = judge(good_records(), question(scope))
        assert judgement.exit_status == 2
        assert missing in judgement.verdicts[0].named("not measured")
        assert judge(good_records(scope=scope), question(scope)).exit_status == 0


def test_outside_the_scope_even_a_bad_value_is_only_listed() -> None:
    bad = make("quality.chat_nll_rise", 1.0)
    judgement = judge([*good_records(), bad], question())
    assert judgement.exit_status == 0
    outcome = next(o for o in judgement.verdicts[0].outcomes if o.rule.name == bad.check)
    assert (outcome.state, outcome.value, outcome.note) == (
        "outside scope",
        1.0,
        "reject in scope full",
    )


def test_reject_wins_over_not_measured() -> None:
    records = [r for r in good_records() if r.check != "memory.peak_ratio"]
    records.append(make("parity.mismatches", 1.0))
    assert judge(records, question()).exit_status == 1


@pytest.mark.parametrize(
    ("records", "asked", "problem"),
    [
        ([], question(), "nothing was measured"),
        ([make("run.errors", 0.0, stage="")], question(), "nothing was measured"),
        ([make("parity.mismatches", 0.0, n=0)], question(), "nothing was measured"),
        (good_records(), Question("default", (), (PRESET,)), "no backend"),
        (good_records(), Question("default", (TARGET,), ()), "no preset"),
        (good_records(), question("default", "fp16", "kivi"), "only baselines and controls"),
    ],
)
def test_nothing_to_judge_is_a_failure(
    records: list[Record], asked: Question, problem: str
) -> None:
    judgement = judge(records, asked)
    assert judgement.exit_status == 2
    assert problem in judgement.problem


def test_what_crashed_in_everything_is_rejected_not_unmeasured() -> None:
    judgement = judge([make("run.errors", 3.0, stage="", n=3)], question())
    assert (judgement.exit_status, judgement.problem) == (1, "")


def test_no_records_at_all_is_a_failure() -> None:
    assert judge([]).exit_status == 2


@pytest.mark.parametrize("control", ["fp16", "kivi"])
def test_baselines_and_controls_never_set_the_exit_status(control: str) -> None:
    records = [_for_all_presets(record) for record in good_records()]
    bad = make("quality.attention_kl", 9.0, preset=control, subject="all layers")
    judgement = judge([*records, bad], question("default", control, PRESET))
    assert [v.decision for v in judgement.verdicts] == ["REJECT", "PASS"]
    assert [v.judged for v in judgement.verdicts] == [False, True]
    assert judgement.exit_status == 0
    unmeasured = judge(good_records(), question("default", control, PRESET))
    assert [v.decision for v in unmeasured.verdicts] == ["NOT MEASURED", "PASS"]
    assert unmeasured.exit_status == 0


def test_an_experiment_is_judged() -> None:
    records = [_for_all_presets(record) for record in good_records()]
    bad = make("quality.attention_kl", 9.0, preset="turbo-qjl", subject="all layers")
    asked = question("default", "turbo-qjl", PRESET)
    assert judge(records, asked).exit_status == 0
    assert judge([*records, bad], asked).exit_status == 1


def test_records_speak_about_their_backend_variant_and_preset_alone() -> None:
    bad = make("parity.mismatches", 5.0)
    others: list[dict[str, Any]] = [{"backend": "x"}, {"variant": "avx2"}, {"preset": "kivi"}]
    for other in others:
        elsewhere = dataclasses.replace(bad, **other)
        assert judge([*good_records(), elsewhere], question()).exit_status == 0
        blank: dict[str, Any] = dict.fromkeys(other, "")
        everywhere = dataclasses.replace(bad, **blank)
        assert judge([*good_records(), everywhere], question()).exit_status == 1


def test_one_target_cannot_answer_for_another() -> None:
    both = Question("default", (TARGET, Target("native", "scalar")), (PRESET,))
    judgement = judge(good_records(), both)
    assert [v.decision for v in judgement.verdicts] == ["PASS", "NOT MEASURED"]
    assert judgement.exit_status == 2


def test_suites_narrow_the_rules() -> None:
    records = [r for r in good_records() if r.suite in ("parity", "run")]
    narrow = Question("default", (TARGET,), (PRESET,), suites=("parity",))
    judgement = judge(records, narrow)
    assert {suite for rule in judgement.rules for suite in rule.suites} == {"run", "parity"}
    assert judgement.exit_status == 0
    assert judge(records, question()).exit_status == 2


def test_a_rule_that_two_suites_measure_is_asked_of_either() -> None:
    for suite in ("wasm", "browser"):
        narrow = Question("browser", (TARGET,), (PRESET,), suites=(suite,))
        judgement = judge(good_records(scope="browser"), narrow)
        assert "wasm.growth_events" in [rule.name for rule in judgement.rules]


def test_records_are_judged_again_by_the_question_they_answer() -> None:
    asked = Question("full", (TARGET,), ("turbo", "kivi"), ("quality",), "quick")
    request = make("run.request", 1.0, stage="", detail=asked.to_detail())
    assert Question.of([Record.from_json(request.to_json())]) == asked
    damaged = make("run.request", 1.0, stage="", detail={"scope": "full"})
    with pytest.raises(RecordError, match=r"run\.request"):
        judge([damaged])


def test_without_a_question_every_target_and_preset_found_is_judged() -> None:
    found = Question.of(good_records())
    assert (found.targets, found.presets, found.scope) == ((TARGET,), (PRESET,), "default")


def test_stages_need_a_measurement_each() -> None:
    records = [r for r in good_records() if r.stage != "one layer"]
    verdict = judge(records, question()).verdicts[0]
    assert verdict.stage == "math"
    assert dict(verdict.stages)["one layer"] == "not measured"
    assert dict(verdict.stages)["tiny transformer"] == "not counted"


def test_nothing_counts_past_a_failed_stage() -> None:
    real = make("quality.next_token_kl", 0.01, stage="real model scalar")
    assert _stages([real])["real model scalar"] == "passed"
    bad = make("quality.tiny_top1", 0.1, stage="one layer")
    stages = _stages([real, bad])
    assert stages["one layer"] == "failed"
    assert stages["tiny transformer"] == stages["real model scalar"] == "not counted"
    judgement = judge([*good_records(), real, bad], question())
    assert judgement.verdicts[0].stage == "math"


def test_stages_a_target_does_not_reach_break_nothing() -> None:
    stages = _stages([make("parity.mismatches", 0.0, stage="SIMD128")])
    assert stages["SIMD"] == stages["scalar WASM"] == stages["browser"] == "not reached"
    assert stages["SIMD128"] == "passed"
    empty = _stages([make("parity.mismatches", 0.0, stage="SIMD", n=0)])
    assert empty["SIMD"] == "not measured"


def test_a_crash_fails_the_stage_it_happened_in() -> None:
    assert _stages([make("run.errors", 1.0, stage="one layer")])["one layer"] == "failed"


def test_unknown_stages_are_refused() -> None:
    with pytest.raises(RecordError, match="no stage 'two layers'"):
        judge([make("parity.mismatches", 0.0, stage="two layers")], question())


def _stages(extra: list[Record]) -> dict[str, str]:
    judgement: Judgement = judge([*good_records(), *extra], question())
    return dict(judgement.verdicts[0].stages)


def _for_all_presets(record: Record) -> Record:
    return dataclasses.replace(record, preset="")
