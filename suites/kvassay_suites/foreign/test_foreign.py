"""Formats of one's own: a sound backend passes, each kind of fault meets the rule for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvassay.backend.own_formats import OwnFormat, OwnFormatBackend, turned
from kvassay.cli import run
from kvassay.cli.parts import selecting
from kvassay.errors import KvassayError
from kvassay.judging.gate import Question, judge
from kvassay.judging.wording import conclusion
from kvassay.presets import preset
from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Request, Target
from kvassay.vector_codec import codec

from .. import parity
from ..oracle import attend64
from ..peers.ggml_backend import GgmlProvider
from ..quality.measured import TINY
from . import SUITE, measure, own, suite

PARTS = (measure.arithmetic, measure.one_layer, measure.tiny_transformers)


class Blocks(OwnFormatBackend):
    """llama.cpp's q8_0 and q4_0, stored by their Python codecs; attention in float64."""

    name, variant, bound = "blocks", "python", 1e-6

    @property
    def formats(self) -> Mapping[str, OwnFormat]:
        return {
            "q8_0": OwnFormat("q8_0", "q8_0", 8.5, self.bound),
            "q4_0": OwnFormat("q4_0", "q4_0", 4.5, self.bound),
            "turned": OwnFormat("q4_0", "q4_0", 4.5, self.bound, hadamard=64),
        }

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> BlocksCache:
        return BlocksCache(name, shape)


class BlocksCache:
    """Decoded rows, as the codec gives them back."""

    #: What each stored vector is multiplied with; 1 is right.
    shrunk = 1.0
    #: Bytes held beside what the codec needs, a byte a value.
    extra = 0.0

    def __init__(self, name: str, shape: Spec) -> None:
        self.codec, self.shape = {"turned": "q4_0", "half": "fp16"}.get(name, name), shape
        self.block = 64 if name == "turned" else 0
        self.rows: list[list[tuple[FloatArray, FloatArray]]] = [[] for _ in range(shape.layers)]
        self.held = 0

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        encoded = [self.encode(k, "key"), self.encode(v, "value")]
        self.held += sum(one.nbytes for one in encoded)
        k, v = (turned(one.decode(), self.block) for one in encoded)
        self.rows[layer].append((k, v))

    def encode(self, x: FloatArray, role: str) -> Any:
        return codec(self.codec, head_dim=x.shape[-1], role=role).encode(turned(x, self.block))

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        k, v = (
            np.concatenate(part).astype(np.float64) for part in zip(*self.rows[layer], strict=True)
        )
        scale = self.shape.effective_softmax_scale
        return attend64(k * self.shrunk, v, q, scale, 0, 0, len(k)).astype(np.float32)

    @property
    def stored_bytes(self) -> int:
        values = sum(k.size + v.size for rows in self.rows for k, v in rows)
        return self.held + int(self.extra * values)

    def close(self) -> None:
        self.rows = []


class _Broken(Blocks):
    cache: type[BlocksCache]

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> BlocksCache:
        return self.cache(name, shape)


class _Shrunk(BlocksCache):
    shrunk = 0.9


class ShrunkKeys(_Broken):
    """Reads keys a tenth too small."""

    cache = _Shrunk


class _Hoarding(BlocksCache):
    extra = 4.0


class KeepsFloats(_Broken):
    """Keeps every number as float32 beside its codes."""

    cache = _Hoarding


class _Chunky(BlocksCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, np.roll(v, 1, axis=0) if self.rows[layer] else v)


class MixesChunks(_Broken):
    """Shifts the values of every append but the first."""

    cache = _Chunky


class _Swapped(BlocksCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return super().attend(layer, q[::-1].copy())


class SwapsHeads(_Broken):
    """Answers for the heads in reverse."""

    cache = _Swapped


class _Coarse(BlocksCache):
    def encode(self, x: FloatArray, role: str) -> Any:
        return super().encode(np.float32(2) * np.round(x / np.float32(2)), role)


class CoarserThanItSays(_Broken):
    """Rounds before its codec does."""

    cache = _Coarse


class _OffTokens(BlocksCache):
    def encode(self, x: FloatArray, role: str) -> Any:
        encoded = super().encode(x, role)
        held = sum(len(k) for k, _ in self.rows[0])
        whole = encoded.decode()
        if role == "value" and (tail := (held + len(x)) % 32) > 1:
            whole[-min(tail, len(x)) :] *= 1.1
        return SimpleNamespace(nbytes=encoded.nbytes, decode=lambda: whole)


class OffInTailOfTokens(_Broken):
    """Another scale in a group of tokens that is not full; right in tails of one."""

    cache = _OffTokens


class _Padded(BlocksCache):
    factor = 1.0

    def encode(self, x: FloatArray, role: str) -> Any:
        encoded = super().encode(x, role)
        whole = encoded.decode()
        if tail := x.shape[-1] % 32:
            whole[..., -tail:] *= self.factor
        return SimpleNamespace(nbytes=encoded.nbytes, decode=lambda: whole)


class _OffChannels(_Padded):
    factor = 1.1


class AnyHeadDim(_Broken):
    """fp16: a codec of every head dim."""

    cache = _Padded

    @property
    def formats(self) -> Mapping[str, OwnFormat]:
        return {"half": OwnFormat("fp16", "fp16", 16, self.bound)}


class OffInTailOfChannels(AnyHeadDim):
    """Another scale in a group of channels that is not full."""

    cache = _OffChannels


def target(name: str) -> Target:
    return Target(f"{__name__}:{name}", "python")


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


def test_a_fault_in_ragged_groups_is_a_wrong_kernel_and_is_placed() -> None:
    """Long and short appends in turn find it; a sound cache of any head dim passes."""
    assert "foreign.relative_error" in judged("AnyHeadDim", "half", measure.arithmetic).named(
        "pass"
    )
    for name, format_, first in (
        ("OffInTailOfTokens", "q8_0", "d 64, 47 tokens, first wrong at token 34"),
        ("OffInTailOfChannels", "half", "d 80, 47 tokens, first wrong at token 1"),
    ):
        whom = target(name)
        records = measure.arithmetic(whom.backend, whom.variant, format_)
        wrong = [r for r in records if r.check == "foreign.relative_error" and r.value > 1]
        assert any(r.subject.endswith(first) for r in wrong)
        assert all("first wrong" in r.subject for r in wrong if "uneven" in r.subject)
        judgement = judge(records, Question("default", (whom,), (format_,), (SUITE,)))
        assert "kernel wrong" in conclusion(judgement)
        assert "too coarse" not in conclusion(judgement)


def test_coarse_codes_of_a_right_kernel_have_the_other_headline() -> None:
    whom = target("Blocks")
    records = measure.arithmetic(whom.backend, whom.variant, "q4_0")
    (template,) = [r for r in records if r.check == "foreign.relative_error"][:1]
    records.append(replace(template, check="foreign.tiny_top1", value=0.5, stage=TINY))
    judgement = judge(records, Question("default", (whom,), ("q4_0",), (SUITE,)))
    assert conclusion(judgement).endswith("kernel right and codes too coarse")


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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selecting, "suites", lambda: {SUITE: suite})
    monkeypatch.delenv("KVASSAY_REQUIRE_VARIANTS", raising=False)
    blocks = target("Blocks").backend
    assert run(["foreign", "--backend", "native"]) == 2
    assert "no formats of its own" in capsys.readouterr().err
    assert run(["foreign", "--backend", blocks, "--preset", "q8_1"]) == 2
    assert re.search("no format 'q8_1'.*q8_0", capsys.readouterr().err)


def test_the_gate_leads_to_the_command() -> None:
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
