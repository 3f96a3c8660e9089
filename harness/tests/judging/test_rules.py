"""Each rule can turn red, and nothing unmeasured passes."""

from __future__ import annotations

import datetime
import math

import pytest
from synthetic import (
    PRESET,
    bad_values,
    good_records,
    good_value,
    kind_for,
    make,
    preset_for,
    question,
    question_for,
)

from kvassay.errors import KvassayError, RecordError, UnknownBackendError
from kvassay.judging.gate import judge
from kvassay.judging.rules import Rule, evaluate, matches, parse_rules, rulebook

RULES = rulebook().rules
#: When the first thresholds were set, before any result.
FIRST = datetime.date(2026, 11, 29)
by_name = pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])

EXPECTED = {
    "run.errors": ("sum", None, 0),
    "run.regressions": ("sum", None, 0),
    "parity.mismatches": ("sum", None, 0),
    "parity.cross_read": ("sum", None, 0),
    "parity.relative_error": ("max", None, 1),
    "correctness.distortion_ratio": ("each", 0.9, 1.1),
    "correctness.bias_z": ("max", None, 5),
    "correctness.scale_identity": ("max", None, 1e-5),
    "correctness.oracle_error": ("max", None, 1),
    "correctness.contract_growth": ("max", None, 0.01),
    "correctness.codec_dead": ("sum", None, 0),
    "correctness.identity_accepted": ("sum", None, 0),
    "correctness.faults": ("sum", None, 0),
    "correctness.lifecycle": ("sum", None, 0),
    "memory.unbilled_bytes": ("max", None, 0),
    "memory.scratch_growth": ("max", None, 65536),
    "memory.shadow_bytes": ("max", None, 0),
    "memory.peak_ratio": ("max", None, 1),
    "memory.retained_bytes": ("max", None, 0),
    "memory.rss_slope": ("max", None, 0.05),
    "quality.attention_kl": ("max", None, 0.05),
    "quality.layer_kl": ("max", None, 0.1),
    "quality.shadow_layer_kl": ("max", None, 0.1),
    "captured.layer_kl": ("max", None, 0.1),
    "quality.tiny_top1": ("min", 0.9, None),
    "quality.tiny_logit_drift": ("max", None, 0.25),
    "quality.next_token_kl": ("max", None, 0.1),
    "quality.shared_pass": ("sum", None, 0),
    "captured.attention_kl": ("max", None, 0.05),
    "captured.output_error": ("max", None, 0.5),
    "foreign.relative_error": ("max", None, 1),
    "foreign.chunking": ("max", None, 1),
    "foreign.stored_bits": ("max", None, 1.05),
    "foreign.shapes_refused": ("sum", None, 0),
    "foreign.misplaced": ("sum", None, 0.0),
    "foreign.exact_zeros": ("sum", None, 0.0),
    "foreign.tiny_top1": ("min", 0.9, None),
    "foreign.tiny_logit_drift": ("max", None, 0.25),
    "foreign.next_token_kl": ("max", None, 0.1),
    "quality.chat_nll_rise": ("max", None, 0.02),
    "quality.task_harm": ("min", 0.05, None),
    "quality.task_kl": ("max", None, 0.1),
    "quality.safety_agreement": ("min", 0.9, None),
    "quality.exact_zeros": ("sum", None, 0),
    "quality.lane_alarms": ("sum", None, 0),
    "quality.arms_unequal": ("sum", None, 0),
    "quality.shadow_kl": ("max", None, 0.05),
    "quality.transform_share": ("max", None, 1),
    "performance.transform_cost": ("max", None, 1),
    "retrieval.recall": ("each", 0.98, None),
    "retrieval.mismatches": ("sum", None, 0),
    "wasm.growth_events": ("max", None, 0),
    "wasm.cap_faults": ("sum", None, 0),
    "wasm.fuel_unsteady": ("sum", None, 0),
    "wasm.fuel": ("max", None, 1),
    "browser.mismatches": ("sum", None, 0),
    "browser.time_ratio": ("max", None, 1.5),
}


def test_thresholds_are_the_agreed_ones() -> None:
    assert {r.name: (r.statistic, r.minimum, r.maximum) for r in RULES} == EXPECTED


@by_name
def test_inside_its_bounds_a_rule_passes(rule: Rule) -> None:
    record = make(rule.check, good_value(rule), subject=rule.subject)
    assert evaluate(rule, [record]).state == "pass"


@by_name
def test_beyond_a_bound_the_verdict_is_reject_and_names_the_rule(rule: Rule) -> None:
    preset = preset_for(rule)
    asked = question_for(rule)
    good = good_records(scope=rule.scope, **kind_for(rule))
    assert judge(good, asked).exit_status == 0
    for value in bad_values(rule):
        bad = make(rule.check, value, subject=rule.subject, preset=preset)
        verdict = judge([*good, bad], asked).verdicts[0]
        assert verdict.decision == "REJECT"
        assert verdict.named("reject") == (rule.name,)


@by_name
def test_without_its_records_the_verdict_is_not_measured(rule: Rule) -> None:
    good = good_records(scope=rule.scope, **kind_for(rule))
    judgement = judge([r for r in good if not matches(rule, r)], question_for(rule))
    assert judgement.exit_status == 2
    assert judgement.verdicts[0].named("not measured") == (rule.name,)


@by_name
def test_a_record_without_comparisons_is_not_made_good_by_another(rule: Rule) -> None:
    good = make(rule.check, good_value(rule), subject=rule.subject)
    empty = make(rule.check, good_value(rule), subject=rule.subject, n=0)
    assert evaluate(rule, [empty]).state == "not measured"
    outcome = evaluate(rule, [good, empty])
    assert outcome.state == "not measured"
    assert outcome.records[0] is empty
    bad = make(rule.check, bad_values(rule)[0], subject=rule.subject)
    assert evaluate(rule, [good, empty, bad]).state == "reject"


@by_name
@pytest.mark.parametrize("order", [1, -1])
def test_a_value_that_is_no_number_rejects(rule: Rule, order: int) -> None:
    values = [good_value(rule), math.nan][::order]
    records = [make(rule.check, value, subject=rule.subject) for value in values]
    outcome = evaluate(rule, records)
    assert outcome.state == "reject"
    assert math.isnan(outcome.records[0].value)


def test_statistics() -> None:
    sums, each, low = (
        rulebook().rule(name)
        for name in ("parity.mismatches", "correctness.distortion_ratio", "quality.tiny_top1")
    )
    assert evaluate(sums, [make(sums.check, 2), make(sums.check, 3)]).value == 5
    spread = [make(each.check, value) for value in (0.95, 0.5, 1.05)]
    assert evaluate(each, spread).value == 0.5
    assert evaluate(each, spread).records[0].value == 0.5
    assert evaluate(low, [make(low.check, 0.95), make(low.check, 0.91)]).value == 0.91


def test_a_median_is_one_of_all_values() -> None:
    text = _toml(statistic="median")
    (rule,) = parse_rules(text).rules
    outcome = evaluate(rule, [make(rule.check, value) for value in (0.0, 100.0, 0.5)])
    assert (outcome.state, outcome.value) == ("pass", 0.5)


def test_a_subject_selects_records() -> None:
    rule = rulebook().rule("quality.attention_kl")
    layer = make(rule.check, 9.0, subject="layer 3")
    assert evaluate(rule, [layer]).state == "not measured"
    whole = make(rule.check, 0.01, subject="all layers")
    assert evaluate(rule, [layer, whole]).state == "pass"


def test_exactness_chooses_the_parity_rules() -> None:
    bound = judge(good_records(exact=False), question()).verdicts[0]
    assert {"parity.mismatches", "parity.cross_read"} <= set(bound.named("does not apply"))
    assert "parity.relative_error" in bound.named("pass")
    undeclared = [r for r in good_records(exact=False) if r.check != "run.target"]
    strict = judge(undeclared, question()).verdicts[0]
    assert "parity.mismatches" in strict.named("not measured")


def test_fp16_is_not_compared_with_itself() -> None:
    verdict = judge(good_records(), question("default", "fp16", PRESET)).verdicts[0]
    assert "memory.peak_ratio" in verdict.named("does not apply")


def test_unknown_rules_get_a_suggestion() -> None:
    with pytest.raises(UnknownBackendError, match=r"did you mean 'parity\.mismatches'"):
        rulebook().rule("parity.mismatch")


def test_every_rule_says_why_since_when_and_what_changes_it() -> None:
    for rule in RULES:
        assert rule.reason.endswith(".")
        assert rule.remedy.endswith(".")
        assert rule.date >= FIRST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = 1\nstages = []\nrule = 3 3", "not TOML"),
        ("version = 9\nstages = []", "version 9"),
        ("version = 1\nstages = []", "no rule"),
    ],
)
def test_files_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        parse_rules(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"statistic": "mean"}, "statistic 'mean'"),
        ({"scope": "ful"}, "did you mean 'full'"),
        ({"requires": ["exakt"]}, "did you mean 'exact'"),
        ({"maxx": 1}, "unknown field 'maxx'"),
        ({"reason": ""}, "reason must be a text"),
        ({"date": "today"}, "date must be a date"),
        ({"max": None}, "needs max, min or both"),
    ],
)
def test_rules_with_mistakes_are_refused_by_name(fields: dict[str, object], message: str) -> None:
    with pytest.raises(RecordError, match=message) as caught:
        parse_rules(_toml(**fields))
    assert isinstance(caught.value, KvassayError)
    assert "'a.b'" in str(caught.value)


def _toml(**changes: object) -> str:
    fields: dict[str, object] = {
        "name": "a.b",
        "title": "t",
        "check": "a.b",
        "statistic": "max",
        "max": 1,
        "unit": "u",
        "scope": "default",
        "reason": "r",
        "date": None,
        "remedy": "r",
        **changes,
    }
    lines = [f"{name} = {value!r}" for name, value in fields.items() if value is not None]
    if fields["date"] is None:
        lines.append("date = 2026-11-29")
    return "\n".join(["version = 1", "stages = []", "[[rule]]", *lines])
