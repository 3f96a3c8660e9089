"""`kvassay capture` and `kvassay gate --tensors`: from a model to a verdict."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted.wrapped import Unbroken, WrappedCache

from kvassay.captured import open_captured, provenance_of, write_captured
from kvassay.cli import run
from kvassay.cli.parts import selecting
from kvassay.errors import KvassayError, TensorsError
from kvassay.judging.gate import Question, judge
from kvassay.models import capture, tiny, tiny_tokens
from kvassay.models.capture import token_digest
from kvassay.protocol import FloatArray, Support
from kvassay.records import read_records
from kvassay.spec import Spec
from kvassay.suite import Request, Target, wanted
from kvassay_suites.captured import SUITE, suite
from kvassay_suites.captured.measure import measure, spec_of
from kvassay_suites.quality.fidelity import first_sealed

Capture = pytest.CaptureFixture[str]
NATIVE = Target("native", "scalar")
PRESETS = ("fp16", "turbo", "kivi")
TOKENS = 240


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's tensors, as the command writes them."""
    path = tmp_path_factory.mktemp("captured") / "tiny.safetensors"
    assert run(["capture", str(path), "--model", "tiny-gqa", "--tokens", str(TOKENS)]) == 0
    return path


@pytest.fixture(autouse=True)
def _only_this_suite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(selecting, "suites", lambda: {SUITE: suite})
    monkeypatch.chdir(tmp_path)


def test_the_command_writes_what_the_model_computes(file: Path) -> None:
    found = open_captured(file)
    truth = capture(tiny("gqa"), tiny_tokens(TOKENS))
    assert found.provenance == provenance_of(truth.config, truth.digest)
    assert found.provenance.text_digest == token_digest(tiny_tokens(TOKENS))
    for number in (0, 1):
        layer = found.layer(number)
        assert np.array_equal(layer.q, truth.q[number])
        assert np.array_equal(layer.k, truth.k[number])
        assert np.array_equal(layer.v, truth.v[number])


def test_layers_can_be_chosen_and_wrong_wishes_are_refused(capsys: Capture) -> None:
    tiny_mha = ("--model", "tiny-mha", "--tokens", "9")
    assert run(["capture", "one.safetensors", *tiny_mha, "--layer", "1"]) == 0
    assert open_captured("one.safetensors").layers == (1,)
    Path("t.txt").write_text("words")
    for wish, says in (
        (("--layer", "2"), "no layer 2"),
        (("--text", "t.txt"), "no tokenizer"),
        (("--model", "tiny-nothing"), "tiny-nothing"),
    ):
        assert run(["capture", "x.safetensors", *tiny_mha, *wish]) == 2
        assert says in capsys.readouterr().err
    assert not Path("x.safetensors").exists()


def test_the_gate_passes_and_rejects_on_the_file(file: Path, capsys: Capture) -> None:
    asked = ("--tensors", str(file), "--backend", "native", "--variant", "scalar")
    what = ("--preset", "turbo", "--preset", "kivi", "--jobs", "1", "--quiet")
    assert run(["gate", *asked, *what, "--suite", SUITE]) == 0
    out = capsys.readouterr().out
    assert "PASS (scope default, only the rules of captured): 1 PASS" in out
    assert re.search(r"native/scalar\s+kivi\s+control: reject", out)
    records = list(read_records("results.jsonl"))
    judged = [r for r in records if r.check == "captured.attention_kl" and r.preset == "turbo"]
    assert [r.subject for r in judged] == ["all layers", "layer 0", "layer 1"]
    overall = judged[0]
    assert overall.detail["model_digest"] == tiny("gqa").config.model_hash
    assert overall.detail["file"] == open_captured(file).digest
    assert f"--tensors {file}" in overall.reproduce
    # Judged again from the records alone, the question is the same.
    assert judge(records).exit_status == 0
    assert Question.of(records).tensors == str(file)


def test_without_a_file_nothing_of_it_is_asked(capsys: Capture) -> None:
    request = Request((NATIVE,), ("turbo",))
    assert not wanted(suite, request)
    assert wanted(suite, replace(request, tensors="f"))
    assert suite.tasks(request) == []
    assert run(["gate", "--suite", SUITE, "--backend", "native"]) == 2
    assert "give --tensors FILE" in capsys.readouterr().err


def test_a_bad_file_is_refused_before_anything_runs(file: Path, capsys: Capture) -> None:
    Path("bad.safetensors").write_bytes(file.read_bytes()[:-5])
    assert run(["gate", "--tensors", "bad.safetensors", "--backend", "native"]) == 2
    assert "bad.safetensors: not sound" in capsys.readouterr().err
    assert not Path("results.jsonl").exists()


def test_a_rule_without_evidence_is_not_measured(file: Path) -> None:
    """The rule applies exactly where a file was given."""
    records = measure("native", "scalar", "turbo", str(file), open_captured(file).digest, TOKENS, 9)
    rule = "captured.attention_kl"
    asked = Question("default", (NATIVE,), ("turbo",), (SUITE,), tensors=str(file))
    assert rule in judge(records, asked).verdicts[0].named("pass")
    empty = [r for r in records if r.check != rule]
    assert rule in judge(empty, asked).verdicts[0].named("not measured")
    untold = replace(asked, tensors="")
    assert rule in judge(records, untold).verdicts[0].named("does not apply")


def test_too_few_tokens_to_seal_a_page_measure_nothing(file: Path) -> None:
    found = open_captured(file)
    few, digest = first_sealed(spec_of(found, "turbo").layer(0)), found.digest
    for record in measure("native", "scalar", "turbo", str(file), digest, few, 9):
        assert record.comparisons == 0
    for record in measure("native", "scalar", "turbo", str(file), digest, few + 1, 9):
        assert record.comparisons > 0


def test_a_file_that_changed_meanwhile_is_refused(file: Path) -> None:
    with pytest.raises(TensorsError, match="changed while it was judged"):
        measure("native", "scalar", "turbo", str(file), "0" * 64, TOKENS, 9)


def test_the_scale_of_the_file_is_used(file: Path, tmp_path: Path) -> None:
    found = open_captured(file)
    layers = {number: found.layer(number) for number in found.layers}
    path = tmp_path / "scaled.safetensors"
    write_captured(path, replace(found.provenance, softmax_scale=0.03125), layers)
    assert spec_of(open_captured(path), "turbo").softmax_scale == 0.03125
    assert spec_of(found, "turbo").identity.tokens == found.provenance.text_digest  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ("decoding:BoundedShrunkDecoder", "captured.attention_kl"),
        ("decoding:BoundedTwoBases", "captured.attention_kl"),
        ("attending:BoundedSwappedHeads", "captured.output_error"),
        ("attending:BoundedHalfTheChannels", "captured.output_error"),
    ],
)
def test_a_broken_backend_is_rejected(broken: str, rule: str, file: Path) -> None:
    """The test of the test: wrong weights by the one rule, wrong outputs by the other."""
    digest = open_captured(file).digest
    target = Target(f"planted.{broken}", "scalar")
    records = measure(target.backend, target.variant, "turbo", str(file), digest, TOKENS, 9)
    asked = Question("default", (target,), ("turbo",), (SUITE,), tensors=str(file))
    assert rule in judge(records, asked).verdicts[0].named("reject")


class _WreckedLayer(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, np.roll(k, 7, axis=-1) if layer == 5 else k, v)


class WreckedLayer(Unbroken):
    """One layer of eight has its channels in another order."""

    exact = False
    bound = 1e6
    cache = _WreckedLayer


@pytest.mark.parametrize("broken", [True, False])
def test_one_wrecked_layer_of_eight_is_rejected_by_its_kl(
    broken: bool, file: Path, tmp_path: Path
) -> None:
    """The median over layers does not see it."""
    found = open_captured(file)
    path = tmp_path / "eight.safetensors"
    layers = {number: found.layer(0) for number in range(8)}
    write_captured(path, replace(found.provenance, layers=8), layers)
    digest = open_captured(path).digest
    name = f"{__name__}:WreckedLayer" if broken else "planted.wrapped:BoundedUnbroken"
    target = Target(name, "scalar")
    records = measure(name, "scalar", "turbo", str(path), digest, TOKENS, 9)
    asked = Question("default", (target,), ("turbo",), (SUITE,), tensors=str(path))
    verdict = judge(records, asked).verdicts[0]
    assert "captured.attention_kl" in verdict.named("pass")
    assert ("captured.layer_kl" in verdict.named("reject")) == broken
    if broken:
        (outcome,) = [o for o in verdict.outcomes if o.rule.name == "captured.layer_kl"]
        assert outcome.records[0].subject == "layer 5"


class Fp16Only(Unbroken):
    """Executes nothing but fp16."""

    def supports(self, spec: Spec) -> Support:
        return Support(spec.keys == "fp16", "fp16 only")


def test_a_preset_that_a_target_does_not_execute_has_no_task(file: Path) -> None:
    request = Request((Target(f"{__name__}:Fp16Only", "scalar"),), PRESETS, tensors=str(file))
    assert [task.preset for task in suite.tasks(request)] == ["fp16"]
    with pytest.raises(KvassayError, match="supports none of the presets turbo, kivi"):
        suite.tasks(replace(request, presets=("turbo", "kivi")))


@pytest.mark.model
@pytest.mark.long
def test_a_real_model(capsys: Capture) -> None:
    """SmolLM2-135M: the figure is that of the quality suite's own run, nearly: same text."""
    layers = ("--layer", "0", "--layer", "15", "--layer", "29")
    assert run(["capture", "smol.safetensors", "--tokens", "400", *layers]) == 0
    asked = ("--tensors", "smol.safetensors", "--suite", SUITE, "--preset", "turbo")
    target = ("--backend", "native", "--variant", "scalar")
    assert run(["gate", *asked, *target, "--jobs", "1", "--quiet"]) == 0
    (overall,) = (
        r
        for r in read_records("results.jsonl")
        if (r.check, r.subject) == ("captured.attention_kl", "all layers")
    )
    assert 1e-4 < overall.value < 0.05
