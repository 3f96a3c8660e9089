"""What the measurements see: exact caches, wrong caches, fixtures, plans and shared passes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import pytest

import kvassay
from kvassay.errors import KvassayError, ModelError
from kvassay.judging.rules import evaluate, rulebook
from kvassay.models import capture, log_softmax, tiny, tiny_tokens
from kvassay.protocol import Cache, Counters, FloatArray
from kvassay.records import Record
from kvassay.registry import ClassProvider, register, unregister
from kvassay.suite import Request, Target
from kvassay_suites.quality import (
    fidelity,
    fixture,
    metrics,
    one_layer,
    plan,
    predictions,
    real_model,
    sharing,
    suite,
    teacher_forced,
    tiny_transformer,
)
from kvassay_suites.quality.measured import REAL, Origin

TOKENS = 230


class ToyCache(Cache):
    """Exact attention in float32 over everything, wrong in the way its backend asks for."""

    def __init__(self, spec: kvassay.Spec, backend: Toy) -> None:
        self.spec = spec
        self._backend = backend
        self._kv: dict[int, list[tuple[FloatArray, FloatArray]]] = {}

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        self._kv.setdefault(layer, []).append((k, v))

    def _stored(self, layer: int, which: int) -> FloatArray:
        stored: FloatArray = np.concatenate([pair[which] for pair in self._kv[layer]])
        heads = stored.transpose(1, 0, 2)
        return heads[::-1] if self._backend.swaps_heads else heads

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        keys = self._stored(layer, 0)
        grouped = q.reshape(len(keys), -1, q.shape[-1])
        scale = np.float32(self.spec.effective_softmax_scale)
        logits: FloatArray = (grouped @ keys.transpose(0, 2, 1) * scale).reshape(len(q), -1)
        return logits

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        if self._backend.raises:
            raise RuntimeError("toy trouble")
        values = self._stored(layer, 1)
        weights = np.exp(log_softmax(self.scores(layer, q))).reshape(
            len(values), -1, len(values[0])
        )
        out = (weights @ values).reshape(q.shape) * self._backend.gain
        return out.astype(np.float32)

    def dump_bytes(self) -> bytes:
        return b"".join(k.tobytes() + v.tobytes() for kv in self._kv.values() for k, v in kv)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(len(self._kv.get(layer, ())) for layer in range(self.spec.layers))

    @property
    def nbytes(self) -> dict[str, int]:
        raise NotImplementedError

    @property
    def counters(self) -> Counters:
        raise NotImplementedError

    def pages(self, layer: int) -> list[bytes]:
        raise NotImplementedError

    def truncate(self, n: int) -> None:
        raise NotImplementedError

    def fork(self) -> Cache:
        raise NotImplementedError

    def reset(self) -> None:
        self._kv.clear()

    def close(self) -> None:
        self._kv.clear()


class Toy(kvassay.Backend):
    """Right by default."""

    name = "toy"
    variant = "scalar"
    gain = 1.0
    swaps_heads = False
    raises = False

    def supports(self, spec: kvassay.Spec) -> kvassay.Support:
        return kvassay.Support(True)

    def prepare(self, spec: kvassay.Spec, threads: int = 1) -> Cache:
        return ToyCache(spec, self)

    def restore_bytes(self, spec: kvassay.Spec, data: bytes, threads: int = 1) -> Cache:
        raise NotImplementedError


class Faint(Toy):
    """Decodes everything too small."""

    gain = 0.4


class Swapped(Toy):
    """Reads the KV heads in the wrong order."""

    swaps_heads = True


class OneUlp(Toy):
    """Off by one unit in the last place."""

    gain = 1.0 + 2.0**-23


class Raising(Toy):
    """Cannot attend."""

    raises = True


class Fp16Only(Toy):
    """Executes no codec."""

    def supports(self, spec: kvassay.Spec) -> kvassay.Support:
        return kvassay.Support(spec.keys == "fp16", "no codecs")


TOYS: dict[str, type[Toy]] = {
    "toy": Toy,
    "faint": Faint,
    "swapped": Swapped,
    "one-ulp": OneUlp,
    "raising": Raising,
    "fp16-only": Fp16Only,
}


@pytest.fixture(autouse=True, scope="module")
def toys() -> Iterator[None]:
    for name, toy in TOYS.items():
        register(ClassProvider(name, toy))
    yield
    for name in TOYS:
        unregister(name)


def value(records: list[Record], check: str) -> float:
    (found,) = [record.value for record in records if record.check == f"quality.{check}"]
    return found


def state(rule: str, records: list[Record]) -> str:
    return evaluate(rulebook().rule(rule), records).state


def test_the_first_sampled_query_is_the_first_that_meets_a_sealed_page() -> None:
    for preset in ("fp16", "turbo", "kivi"):
        layer = kvassay.preset(preset, layers=1, kv_heads=1, query_heads=1, head_dim=64).layer(0)
        first = fidelity.first_sealed(layer)
        assert (layer.sealed(first), layer.sealed(first + 1)) == (0, 1)
        assert fidelity.sampled_positions(layer, first, 7) == []
        assert fidelity.sampled_positions(layer, first + 8, 7) == [first, first + 7]


def test_an_exact_cache_shows_no_distance() -> None:
    records = one_layer.measure("toy", "scalar", "turbo", ["gqa"])
    assert all(record.comparisons > 0 for record in records)
    assert value(records, "one_layer_kl") < 1e-9
    assert value(records, "one_layer_js") < 1e-9
    assert value(records, "one_layer_top1") == 1.0
    assert value(records, "one_layer_output_error") < 1e-5
    assert value(records, "one_layer_output_cosine") == pytest.approx(1.0)


def test_a_scaled_decoder_shows_in_the_error_and_not_in_the_weights() -> None:
    records = one_layer.measure("faint", "scalar", "turbo", ["mha"])
    assert value(records, "one_layer_output_error") == pytest.approx(0.6, abs=1e-4)
    assert value(records, "one_layer_kl") < 1e-9


def test_swapped_heads_show_in_the_weights() -> None:
    records = one_layer.measure("swapped", "scalar", "turbo", ["gqa"])
    assert value(records, "one_layer_kl") > 0.5


def test_tiny_transformers_pass_an_exact_cache_and_reject_swapped_heads() -> None:
    good = tiny_transformer.measure("toy", "scalar", "kivi", ["gqa"])
    assert (state("quality.tiny_top1", good), state("quality.tiny_logit_drift", good)) == (
        "pass",
        "pass",
    )
    bad = tiny_transformer.measure("swapped", "scalar", "kivi", ["gqa"])
    assert (state("quality.tiny_top1", bad), state("quality.tiny_logit_drift", bad)) == (
        "reject",
        "reject",
    )


def test_the_fixture_is_pinned() -> None:
    digest = hashlib.sha256()
    for shape in fixture.SHAPES:
        x = fixture.one_layer(shape, 64)
        for array in (x.q, x.k, x.v):
            digest.update(array.astype("<f4").tobytes())
    assert digest.hexdigest() == "aca5fff0a07d2d45fbcfce72b5c833b2996bc8d26d245a7c66cd7adb1bf32d81"


@pytest.mark.parametrize("shape", fixture.SHAPES)
def test_the_fixture_is_as_hard_as_real_layers(shape: str) -> None:
    """A sink, large channels, a bias of keys, attention shared by a handful of tokens."""
    x = fixture.one_layer(shape, 512)
    spread, centre = x.k.std(axis=0), x.k.mean(axis=0)
    assert np.linalg.norm(centre) > np.linalg.norm(spread)
    assert (np.abs(centre).max(axis=-1) > 5 * np.median(np.abs(centre), axis=-1)).all()
    log_p, _ = fidelity.exact_attention(
        x.q[-1],
        x.k.transpose(1, 0, 2).astype(np.float64),
        x.v.transpose(1, 0, 2).astype(float),
        1 / 8,
    )
    p = np.exp(log_p)
    sharing_tokens = np.exp(-(p * log_p).sum(axis=-1))
    assert 2 < np.median(sharing_tokens) < 100
    assert p[:, 0].mean() > 0.1


def test_equal_hidden_states_predict_the_same_and_others_do_not() -> None:
    model = tiny("mqa")
    captured = capture(model, tiny_tokens(200))
    same = predictions.compare_predictions(model, captured, captured.hidden)
    assert same.kl.shape == same.top1.shape == (200,)
    assert same.nll.shape == (199,)
    assert not same.kl.any()
    assert same.top1.all()
    assert (same.nll == same.full_nll).all()
    other = predictions.compare_predictions(model, captured, captured.hidden * np.float32(0.9))
    assert (other.kl > 0).all()


def shared(follower: str) -> tuple[list[Record], list[Record]]:
    """Records of the leader and of a follower after sharing one made-up record."""
    captured = capture(tiny("gqa"), tiny_tokens(TOKENS))
    leader = Target("toy", "scalar")
    origin = Origin(leader, "turbo", REAL)
    record = origin.record("nll_rise", 0.01, "relative", 10, "made up")
    records = sharing.share([record], leader, [(follower, "scalar")], "turbo", captured, "made up")
    return [r for r in records if r.backend == "toy"], [r for r in records if r.backend == follower]


@pytest.fixture(params=["faint", "one-ulp"])
def differing(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_equal_bits_share_a_pass() -> None:
    register(ClassProvider("twin", Toy))
    try:
        leader, twin = shared("twin")
    finally:
        unregister("twin")
    assert [record.check for record in leader] == ["quality.nll_rise", "quality.shared_pass"]
    assert [record.check for record in twin] == ["quality.shared_pass", "quality.nll_rise"]
    assert state("quality.shared_pass", leader) == state("quality.shared_pass", twin) == "pass"
    assert twin[1].value == leader[0].value
    assert twin[1].detail["shared_with"] == "toy scalar"


def test_one_differing_ulp_stops_the_sharing(differing: str) -> None:
    leader, other = shared(differing)
    assert state("quality.shared_pass", leader) == "pass"
    assert [record.check for record in other] == ["quality.shared_pass"]
    assert state("quality.shared_pass", other) == "reject"
    assert other[0].detail["differing"]["outputs"] > 0
    assert other[0].detail["differing"]["dump"] == 0


def test_a_follower_that_raises_is_not_measured_and_spares_the_leader() -> None:
    leader, other = shared("raising")
    assert state("quality.shared_pass", leader) == "pass"
    assert [record.check for record in other] == ["quality.shared_pass"]
    assert state("quality.shared_pass", other) == "not measured"
    assert "toy trouble" in other[0].detail["error"]
    assert math.isnan(other[0].value)


def test_bits_of_different_length_differ() -> None:
    def bits(n: int) -> sharing.Bits:
        words = np.zeros(4, dtype=np.uint32)
        return sharing.Bits(words, words, np.zeros(n, dtype=np.uint8))

    assert bits(10).differing(bits(7)) == {"outputs": 0, "scores": 0, "dump": 3}


def test_only_what_ships_shares_and_the_fastest_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_shipped", lambda name: name in ("numpy", "c"))
    monkeypatch.setattr(plan, "_exact", lambda target: target.variant != "relaxed")
    monkeypatch.setattr(plan, "_slowness", lambda target: (False, target.backend == "numpy"))
    targets = [
        Target("mine", "scalar"),
        Target("numpy", "scalar"),
        Target("c", "avx2"),
        Target("c", "scalar"),
        Target("c", "relaxed"),
    ]
    assert plan.plan_passes(targets) == [
        plan.Pass(targets[2], (targets[3], targets[1])),
        plan.Pass(targets[0]),
        plan.Pass(targets[4]),
    ]


def test_every_target_and_preset_has_its_tasks_at_every_depth() -> None:
    targets = (Target("toy", "scalar"), Target("faint", "scalar"))
    for depth in ("quick", "default", "full"):
        tasks = suite.tasks(Request(targets, ("fp16", "turbo"), depth=depth))
        found = {(t.target, t.preset, t.function.partition(":")[0]) for t in tasks if t.target}
        assert len(found) == len(tasks) - 1 == 2 * 2 * 3
    assert suite.tasks(Request((), ("turbo",))) == []


def test_an_unsupported_preset_has_no_tasks_and_no_preset_at_all_is_an_error() -> None:
    targets = (Target("toy", "scalar"), Target("fp16-only", "scalar"))
    tasks = suite.tasks(Request(targets, ("fp16", "turbo")))
    assert {t.preset for t in tasks if t.target == targets[0]} == {"fp16", "turbo"}
    assert {t.preset for t in tasks if t.target == targets[1]} == {"fp16"}
    with pytest.raises(KvassayError, match="fp16-only scalar supports none of the presets turbo"):
        suite.tasks(Request(targets, ("turbo",)))


def test_a_missing_model_is_a_typed_error() -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        teacher_forced.measure("toy", "scalar", "turbo", "no-such-model", 320, 6, 7)


def test_spread_of_layers_keeps_both_ends() -> None:
    assert real_model.spread_layers(30, 6) == [0, 6, 12, 17, 23, 29]
    assert real_model.spread_layers(2, 6) == [0, 1]
    assert metrics.median(np.array(real_model.spread_layers(30, 30))) == 14.5
