"""What hands back what it holds: a sound one keeps the rules, each fault meets the one for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvassay.backend.named_class import NamedClass, named
from kvassay.backend.returned import Holder, ReturnedCache, ReturningBackend
from kvassay.cli import run
from kvassay.cli.parts import selecting
from kvassay.errors import InputError, KvassayError, StateError, UnknownBackendError
from kvassay.judging.gate import Question, judge
from kvassay.protocol import FloatArray
from kvassay.records import Record
from kvassay.registry import load
from kvassay.running.runner import target_tasks
from kvassay.spec import Spec
from kvassay.suite import Request, Target

from ..oracle import attend64
from . import SUITE, measure, returned, suite

HERE = __name__


class Rounded:
    """Whole numbers of a vector's largest magnitude over 127: 8 bits, and 32 a vector."""

    codes: type[np.generic] = np.int8

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode(self, x: FloatArray) -> Any:
        step = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
        return np.rint(x / step).astype(self.codes), step

    def decode(self, encoded: Any) -> FloatArray:
        codes, step = encoded
        found: FloatArray = codes.astype(np.float32) * step
        return found


class Padded(Rounded):
    """The same codes, eight bytes each."""

    codes = np.int64


class Floats(Rounded):
    """Keeps what it is given."""

    def encode(self, x: FloatArray) -> Any:
        return x.copy()

    def decode(self, encoded: Any) -> FloatArray:
        found: FloatArray = encoded
        return found


class ShiftedTail(Rounded):
    """Off by one in the rows that fill no group of 32."""

    def decode(self, encoded: Any) -> FloatArray:
        found = super().decode(encoded)
        if tail := len(found) % 32:
            found[-tail:] = np.roll(found[-tail:], 1, axis=0)
        return found


class Halves:
    """fp16 rows of each layer."""

    def __init__(self, layers: int) -> None:
        self.rows: list[list[Any]] = [[] for _ in range(layers)]

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        self.rows[layer] += [pair.astype(np.float16) for pair in np.stack([k, v], axis=1)]
        whole = np.stack(self.rows[layer]).astype(np.float32)
        return whole[:, 0], whole[:, 1]

    def drop_last(self, tokens: int) -> None:
        self.rows = [rows[:-tokens] for rows in self.rows]

    def reset(self) -> None:
        self.rows = [[] for _ in self.rows]

    def settle(self) -> None:
        pass


class WrongHead(Halves):
    """Rolls the heads of keys from the second append on."""

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        later = bool(self.rows[layer])
        return super().update(layer, np.roll(k, 1, axis=1) if later else k, v)


class StaleAfterCrop(Halves):
    """Cuts one token too few, and drops the next."""

    cropped = 0

    def drop_last(self, tokens: int) -> None:
        self.cropped = tokens  # the length alone; the first tokens behind it are the old ones

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.cropped:
            del self.rows[layer][len(self.rows[layer]) - self.cropped + 1 :]
            k, v, self.cropped = k[1:], v[1:], 0
        keys, values = super().update(layer, k, v)
        return keys, values


class StaleAfterReset(Halves):
    """Keeps two tokens."""

    def reset(self) -> None:
        self.rows = [rows[:2] for rows in self.rows]


class Evicts(Halves):
    """Keeps all, gives a window."""

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        keys, values = super().update(layer, k, v)
        return keys[-128:], values[-128:]


class _Backend(ReturningBackend):
    kind: type[Halves] = Halves

    def __init__(self) -> None:
        super().__init__(type(self).__name__, "format", 16)

    def holder(self, shape: Spec) -> Holder:
        return self.kind(shape.layers)


class Sound(_Backend):
    """Every token in its place, as fp16."""


class SwapsHeads(_Backend):
    """Another head's keys from the second append on."""

    kind = WrongHead


class KeepsCropped(_Backend):
    """The first token behind a crop is the one that was cut away."""

    kind = StaleAfterCrop


class KeepsReset(_Backend):
    """Two tokens survive a reset."""

    kind = StaleAfterReset


class Window(_Backend):
    """Gives the newest 128 tokens back."""

    kind = Evicts


def judged(backend: str, *parts: Callable[..., list[Record]]) -> Any:
    """The verdict after these parts; the format is the one that the backend has."""
    target = Target(backend, "python")
    (name,) = load(backend).formats  # type: ignore[attr-defined]
    records = [r for task in target_tasks([target]) for r in task.run()]
    records += [r for part in parts for r in part(backend, "python", name)]
    return judge(records, Question("default", (target,), (name,), (SUITE,))).verdicts[0]


def codec(name: str, claimed: float = 8.5) -> str:
    return f"array-codec:{HERE}:{name}?claimed-bits={claimed}"


def test_a_sound_codec_keeps_every_rule_that_was_measured() -> None:
    parts = (returned.placed, returned.held, returned.one_layer, measure.tiny_transformers)
    verdict = judged(codec("Rounded"), *parts)
    assert verdict.named("reject") == ()
    assert {rule for rule in verdict.named("pass") if rule.startswith(SUITE)} == {
        *("foreign.misplaced", "foreign.stored_bits", "foreign.exact_zeros"),
        *("foreign.tiny_top1", "foreign.tiny_logit_drift"),
    }
    assert "foreign.next_token_kl" in verdict.named("not measured")
    assert not {"foreign.relative_error", "foreign.chunking"} & {*verdict.named("not measured")}


def test_a_sound_cache_keeps_its_places() -> None:
    verdict = judged(f"{HERE}:Sound", returned.placed)
    assert verdict.named("reject") == ()
    assert "foreign.misplaced" in verdict.named("pass")


@pytest.mark.parametrize(
    ("backend", "rule", "tells"),
    [
        (f"{HERE}:SwapsHeads", "foreign.misplaced", "first wrong at token 2,"),
        (f"{HERE}:KeepsCropped", "foreign.misplaced", "after a crop of 37 tokens"),
        (f"{HERE}:KeepsReset", "foreign.misplaced", "after a reset"),
        (f"{HERE}:Window", "foreign.misplaced", "uneven appends"),
        (codec("ShiftedTail"), "foreign.misplaced", "uneven appends"),
        (codec("Floats"), "foreign.exact_zeros", "oldest 150 of 600 tokens"),
    ],
)
def test_each_fault_meets_its_rule(backend: str, rule: str, tells: str) -> None:
    verdict = judged(backend, returned.placed)
    assert verdict.named("reject") == (rule,)
    (outcome,) = (o for o in verdict.outcomes if o.rule.name == rule)
    assert any(tells in record.subject for record in outcome.records if record.value > 0)


@pytest.mark.parametrize(("name", "least"), [("Padded", 60), ("Floats", 31)])
def test_bytes_are_those_of_the_process(name: str, least: float) -> None:
    """Wide codes, and floats under another name: the claim is not asked."""
    verdict = judged(codec(name), returned.held)
    assert verdict.named("reject") == ("foreign.stored_bits",)
    (record,) = next(o for o in verdict.outcomes if o.rule.name == "foreign.stored_bits").records
    assert record.detail["held"] > least


def test_a_store_of_floats_that_says_so_is_no_fault() -> None:
    verdict = judged(codec("Floats", 32), returned.placed, returned.held)
    assert verdict.named("reject") == ()


def test_attention_over_what_came_back_is_exact() -> None:
    rng = np.random.default_rng(0)
    shape = Spec(layers=1, query_heads=6, kv_heads=2, head_dim=64)
    k, v = (rng.standard_normal((9, 2, 64), np.float32) for _ in "kv")
    q = rng.standard_normal((4, 6, 64), np.float32)
    cache = ReturnedCache(Halves(1), shape)
    cache.append(0, k, v)
    keys, values = (x.astype(np.float16).astype(np.float64) for x in (k, v))
    found = cache.attend(0, q)
    for n in range(4):
        seen = 6 + n
        right = attend64(
            keys[:seen], values[:seen], q[n], shape.effective_softmax_scale, 0, 0, seen
        )
        assert np.allclose(found[n], right, atol=1e-6)
    assert np.array_equal(cache.attend(0, q[-1]), found[-1])
    cache.close()
    with pytest.raises(StateError, match="closed"):
        cache.append(0, k, v)


def test_another_shape_than_was_given_is_refused() -> None:
    class Flat(Halves):
        def update(self, layer: int, k: FloatArray, v: FloatArray) -> Any:
            return k.reshape(len(k), 1, -1), v

    cache = ReturnedCache(Flat(1), Spec(layers=1, query_heads=2, kv_heads=2, head_dim=64))
    x = np.zeros((3, 2, 64), np.float32)
    with pytest.raises(InputError, match=r"\(3, 1, 128\)"):
        cache.append(0, x, x)


def test_a_class_and_its_options_are_one_text() -> None:
    made = named("a.b:C", ["nbits=4", "kind=x y&z"], "--hf-options", 4.5)
    assert NamedClass.of_text(str(made)) == made
    assert str(named("a.b:C", [], "--hf-options", None)) == "a.b:C"
    for path in ("a.b", "a-b:C", ":C", "a:"):
        with pytest.raises(KvassayError, match=r"package.module:Class"):
            named(path, [], "--hf-cache", None)
    with pytest.raises(KvassayError, match="NAME=VALUE"):
        named("a:B", ["nbits"], "--hf-options", None)
    with pytest.raises(KvassayError, match="--claimed-bits 0"):
        named("a:B", [], "--hf-options", 0)


def test_what_a_class_needs_and_does_not_get_is_named() -> None:
    whole = NamedClass.of_text(f"{HERE}:Rounded")
    assert whole.make({"dim": 64, "depth": 3}, "--codec-options").dim == 64
    assert NamedClass.of_text(f"{HERE}:Rounded?dim=80").make({"dim": 64}, "").dim == 80
    with pytest.raises(KvassayError, match=r"needs dim: give --codec-options dim=VALUE"):
        whole.make({}, "--codec-options")
    with pytest.raises(UnknownBackendError, match="Missing"):
        NamedClass.of_text(f"{HERE}:Missing").load()


def test_the_suite_asks_each_format_what_it_can_answer() -> None:
    tasks = suite.tasks(Request((Target(codec("Rounded"), "python"),), ()))
    labels = [task.label.partition(" ")[0] for task in tasks]
    assert labels == ["placed", "held", "one", "tiny", "model"]


def test_the_doors_of_the_gate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selecting, "suites", lambda: {SUITE: suite})
    monkeypatch.delenv("KVASSAY_REQUIRE_VARIANTS", raising=False)
    for arguments, said in (
        (["--hf-options", "nbits=4"], "--hf-options goes with --hf-cache"),
        (["--claimed-bits", "4"], "--claimed-bits goes with --hf-cache or --codec"),
        (["--codec", f"{HERE}:Rounded", "--preset", "turbo"], "no format 'turbo'"),
        (["--codec", f"{HERE}:Rounded", "--backend", "reference"], "judge them apart"),
        (["--codec", "nonsense"], "give package.module:Class"),
        (["--codec", f"{HERE}:Missing"], "cannot import"),
    ):
        assert run(["gate", *arguments]) == 2
        assert said in capsys.readouterr().err
