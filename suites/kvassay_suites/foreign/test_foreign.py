"""Formats of one's own: a sound backend passes, each kind of fault meets the rule for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvassay.backend.own_formats import turned
from kvassay.cli import run
from kvassay.cli.parts import measuring, selecting
from kvassay.errors import KvassayError
from kvassay.judging.gate import Judgement, Question, judge
from kvassay.judging.required import REQUIRED
from kvassay.judging.wording import conclusion
from kvassay.presets import preset
from kvassay.records import Record
from kvassay.running.runner import collect_tasks
from kvassay.suite import Request, Target

from .. import foreign, parity
from ..common.specs import MATH
from ..peers.ggml_backend import GgmlProvider
from ..quality.measured import TINY
from . import SUITE, measure, own, planted, suite

Capture = pytest.CaptureFixture[str]
PARTS = (measure.arithmetic, measure.one_layer, measure.tiny_transformers)


def target(name: str) -> Target:
    return Target(f"{planted.__name__}:{name}", "python")


def judged(name: str, format_: str, *parts: Callable[..., list[Record]]) -> Any:
    whom = target(name)
    records = [r for part in parts for r in part(whom.backend, whom.variant, format_)]
    return judge(records, Question("default", (whom,), (format_,), (SUITE,))).verdicts[0]


@pytest.mark.parametrize("format_", ["q8_0", "q4_0"])
def test_a_sound_backend_keeps_every_rule_that_was_measured(format_: str) -> None:
    verdict = judged("Blocks", format_, *PARTS)
    assert verdict.named("reject") == ()
    assert {rule for rule in verdict.named("pass") if rule.startswith(SUITE)} == {
        *("foreign.relative_error", "foreign.chunking", "foreign.stored_bits"),
        "foreign.shapes_refused",
        *("foreign.tiny_top1", "foreign.tiny_logit_drift"),
    }
    assert "foreign.next_token_kl" in verdict.named("not measured")
    assert verdict.decision == "NOT MEASURED"


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("ShrunkKeys", "foreign.relative_error"),
        ("SwapsHeads", "foreign.relative_error"),
        ("CoarserThanItSays", "foreign.relative_error"),
        ("MixesChunks", "foreign.chunking"),
        ("KeepsFloats", "foreign.stored_bits"),
    ],
)
def test_each_fault_meets_its_rule(name: str, rule: str) -> None:
    assert rule in judged(name, "q8_0", measure.arithmetic).named("reject")


def judgement_of(name: str, format_: str) -> Judgement:
    """What is said of a format's arithmetic alone."""
    whom = target(name)
    records = measure.arithmetic(whom.backend, whom.variant, format_)
    return judge(records, Question("default", (whom,), (format_,), (SUITE,)))


@pytest.mark.parametrize(
    ("name", "format_", "first"),
    [
        ("OffInTailOfTokens", "q8_0", "first at token 34 of head dim 64"),
        ("KeysOffInTailOfChannels", "half", "first at token 34 of head dim 80"),
        ("ValuesOffInTailOfChannels", "half", "first at token 1 of head dim 80"),
    ],
)
def test_a_scale_off_by_one_in_a_ragged_group_is_a_wrong_kernel_and_is_placed(
    name: str, format_: str, first: str
) -> None:
    """Each passes every plain shape."""
    judgement = judgement_of(name, format_)
    (wrong,) = [o for o in judgement.verdicts[0].outcomes if o.state == "reject"]
    assert wrong.rule.name == "foreign.relative_error"
    assert all("first wrong at token" in r.subject for r in wrong.records if r.value > 1)
    assert f"; kernel wrong, {first}" in conclusion(judgement)
    assert "too coarse" not in conclusion(judgement)


@pytest.mark.parametrize(
    ("name", "silent", "said"),
    [
        ("AnyHeadDim", 0, ""),
        ("SaysWhichHeadDims", 0, "refused: head dim 80, 112 (whole groups only)"),
        ("RefusesRaggedHeadDims", 2, "head dim 80, 112 (supports_own has it, prepare_own refuses"),
        ("SaysNotWhy", 2, "refused: head dim 80, 112 (no reason given)"),
        ("RefusesLengths", 1, "refused: head dim 128 (an append: of 50 tokens)"),
    ],
)
def test_no_shape_is_refused_in_silence(name: str, silent: int, said: str) -> None:
    judgement = judgement_of(name, "half")
    outcomes = {o.rule.name: o for o in judgement.verdicts[0].outcomes}
    assert outcomes["foreign.shapes_refused"].value == silent
    assert outcomes["foreign.shapes_refused"].state == ("reject" if silent else "pass")
    assert outcomes["foreign.relative_error"].state == "pass"
    assert said in conclusion(judgement)
    assert bool(said) == ("refused" in conclusion(judgement))


def test_a_format_without_any_shape_is_not_measured() -> None:
    verdict = judged("HasNone", "half", *PARTS)
    assert verdict.decision == "NOT MEASURED"
    assert {"foreign.relative_error", "foreign.tiny_top1"} <= set(verdict.named("not measured"))


def test_coarse_codes_of_a_right_kernel_have_the_other_headline() -> None:
    whom = target("Blocks")
    records = measure.arithmetic(whom.backend, whom.variant, "q4_0")
    (template,) = [r for r in records if r.check == "foreign.relative_error"][:1]
    records.append(replace(template, check="foreign.tiny_top1", value=0.5, stage=TINY))
    judgement = judge(records, Question("default", (whom,), ("q4_0",), (SUITE,)))
    assert "; kernel right and codes too coarse; refused: head dim 80" in conclusion(judgement)


def test_coarse_codes_are_judged_by_models_and_not_as_wrong_arithmetic() -> None:
    """Fair to both: the kernel of q4_0 is right, and q4_0 errs more than q8_0."""
    errors = {
        name: [r.value for r in measure.one_layer(target("Blocks").backend, "python", name)]
        for name in ("q8_0", "q4_0")
    }
    assert max(errors["q8_0"]) < min(errors["q4_0"])
    assert "foreign.relative_error" in judged("Blocks", "q4_0", measure.arithmetic).named("pass")


def test_a_format_behind_a_transform() -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 128), np.float32)
    there = turned(x, 64)
    assert np.allclose(turned(there, 64), x, atol=1e-6)
    assert np.allclose((there**2).sum(), (x**2).sum(), rtol=1e-5)
    assert not np.allclose(there, x, atol=0.1)
    assert turned(x, 0) is x
    assert np.array_equal(turned(x[..., :96], 64), x[..., :96])
    assert "foreign.relative_error" in judged("Blocks", "turned", measure.arithmetic).named("pass")


def test_presets_are_formats_and_wrong_ones_are_named() -> None:
    tasks = suite.tasks(Request((target("Blocks"),), ("q4_0",)))
    assert [task.preset for task in tasks] == ["q4_0"] * 4
    assert len(suite.tasks(Request((target("Blocks"),), ()))) == 12
    with pytest.raises(KvassayError, match="no format 'q9'; it has q8_0, q4_0, turned"):
        suite.tasks(Request((target("Blocks"),), ("q9",)))
    with pytest.raises(KvassayError, match="no formats of its own"):
        own(Target("native", "scalar"))
    shape = preset("fp16", layers=1, kv_heads=1, query_heads=1, head_dim=64)
    assert "kvassay foreign" in own(target("Blocks")).supports(shape).reason


def test_the_command_says_what_it_cannot_judge(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(selecting, "suites", lambda: {SUITE: suite})
    monkeypatch.delenv("KVASSAY_REQUIRE_VARIANTS", raising=False)
    blocks = target("Blocks").backend
    assert run(["foreign", "--backend", "native"]) == 2
    assert "no formats of its own" in capsys.readouterr().err
    assert run(["foreign", "--backend", blocks, "--preset", "q8_1"]) == 2
    assert re.search("no format 'q8_1'.*q8_0", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("Blocks", 2, "NOT MEASURED (scope default, only the rules of foreign)"),  # no models here
        ("ShrunkKeys", 1, "kernel wrong, first at token"),
    ],
)
def test_the_gate_judges_formats_by_this_suite_on_its_own(
    name: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(selecting, "suites", lambda: {SUITE: suite, "parity": parity.suite})
    monkeypatch.setattr(foreign, "_PARTS", {"measure:arithmetic": (MATH, 4.0)})
    monkeypatch.setattr(measuring, "plan_tasks", lambda *asked: collect_tasks(*asked[:2]))
    monkeypatch.delenv("KVASSAY_REQUIRE_VARIANTS", raising=False)
    monkeypatch.chdir(tmp_path)
    asked = ["gate", "--backend", target(name).backend, "--quick", "--jobs", "1"]
    assert run([*asked, "--preset", "q8_0", "--junit", "junit.xml"]) == status
    assert said in capsys.readouterr().out
    assert "foreign.relative_error" in Path("junit.xml").read_text(encoding="utf-8")


def test_the_gate_says_which_formats_it_does_not_find(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)  # which these backends have no variants of
    asked = ["gate", "--backend", target("Blocks").backend, "--quick"]
    assert run([*asked, "--preset", "turbo"]) == 2
    assert "no format 'turbo'" in capsys.readouterr().err
    assert run([*asked, "--backend", "native"]) == 2
    assert "native has none: judge them apart" in capsys.readouterr().err


def test_parity_leads_to_the_command() -> None:
    with pytest.raises(KvassayError, match=r"none of parity's specs.* kvassay foreign"):
        parity.suite.tasks(Request((target("Blocks"),), ("turbo",), depth="quick"))


def test_without_llama_cpp_ggml_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ..peers import ggml

    ggml._library.cache_clear()
    monkeypatch.setattr(ggml, "find_spec", lambda name: None)
    (state,) = GgmlProvider().variants().values()
    assert (state.status, state.reason) == ("missing-package", "llama-cpp-python is not installed")


@pytest.mark.model
@pytest.mark.long
def test_the_real_model_with_blocks_of_eight_bits() -> None:
    whom = target("Blocks")
    records = measure.model(whom.backend, whom.variant, "q8_0", "smollm2-135m", 160)
    (kl,) = (r.value for r in records if r.check == "foreign.next_token_kl")
    assert 0 < kl < 0.02
    whom = target("HasNone")
    (record,) = measure.model(whom.backend, whom.variant, "half", "smollm2-135m", 160)
    assert (record.comparisons, record.detail["refused"]) == (0, "on Sundays")
