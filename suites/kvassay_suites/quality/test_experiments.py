"""Free-running arms, control lanes, the shadow, the transform's cost: right ones and planted
faults, each of which must turn its rule red."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import pytest

import kvassay
from kvassay.errors import InputError
from kvassay.judging.rules import evaluate, rulebook
from kvassay.models import CacheAttention, Model, Tokens, capture, log_softmax, tiny, tiny_tokens
from kvassay.protocol import Cache, FloatArray
from kvassay.records import Record
from kvassay.registry import ClassProvider, provider, register, unregister
from kvassay.suite import Request, Target
from kvassay_suites.quality import (
    arms,
    free_running,
    intervals,
    lanes,
    prefill,
    real_model,
    shadow,
    suite,
    tiny_transformer,
    transform,
)
from kvassay_suites.quality.arms import Run, Sampler, free_run
from kvassay_suites.quality.measured import REAL, Origin
from kvassay_suites.quality.predictions import LayerDrift, by_position, compare_predictions
from kvassay_suites.quality.test_measurements import Swapped, Toy, ToyCache

ORIGIN = Origin(Target("toy", "scalar"), "turbo", REAL)


class Floats(Toy):
    """Says that it quantizes, and returns what floats give."""

    exact = False
    bound = 0.1


class SlowCache(ToyCache):
    """Turns every query by a matrix far too large for what it saves."""

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        if self.spec.keys != "fp16":
            big = np.ones((256, 256), np.float32)
            for _ in range(4):
                big = big @ big * np.float32(1 / 256)
        return super().attend(layer, q)


class Slow(Toy):
    """Right, but its transform costs more than any bandwidth saves."""

    def prepare(self, spec: kvassay.Spec, threads: int = 1) -> Cache:
        return SlowCache(spec, self)


@pytest.fixture(autouse=True, scope="module")
def toys() -> Iterator[None]:
    made: dict[str, type[Toy]] = {"floats": Floats, "slow": Slow}
    for name, toy in made.items():
        register(ClassProvider(name, toy))
    yield
    for name in made:
        unregister(name)


def state(rule: str, records: list[Record]) -> str:
    return evaluate(rulebook().rule(rule), records).state


def native() -> str:
    """The best variant of the C backend on this machine."""
    states = provider("native").variants()
    return next(name for name, found in states.items() if found.runs)


def test_the_full_scope_adds_experiments_and_times_them_alone() -> None:
    targets = (Target("floats", "scalar"),)

    def names(scope: str) -> list[str]:
        tasks = suite.tasks(Request(targets, ("fp16", "turbo"), scope=scope))
        return sorted(f"{t.function.split('.')[2].partition(':')[0]} {t.preset}" for t in tasks)

    added = ("free_running", "prefill", "shadow", "lanes")
    wanted = {f"{name} {preset}" for name in added for preset in ("fp16", "turbo")}
    assert set(names("full")) - set(names("default")) >= wanted | {"transform turbo"}
    assert "transform fp16" not in names("full")
    assert all(
        callable(task.load()) for task in suite.tasks(Request(targets, ("turbo",), scope="full"))
    )
    alone = [t for t in suite.tasks(Request(targets, ("turbo",), scope="full")) if t.alone]
    assert [task.function.split(".")[2] for task in alone] == ["transform:measure"]


# --- arms -----------------------------------------------------------------------------------------


def full(model: Model, prompt: Tokens, sampler: Sampler, n: int = 12) -> Run:
    return free_run(model, lambda: nullcontext(model.full_attention()), prompt, sampler, n)


def divergences(cached: Callable[[Model, Tokens, Sampler], Run]) -> list[Record]:
    model = tiny("gqa")
    prompts = [tiny_tokens(20, seed) for seed in (1, 2)]
    samplers = (*free_running.GREEDY, *free_running.SAMPLED)
    found = arms.pairs(
        prompts, samplers, lambda p, s: full(model, p, s), lambda p, s: cached(model, p, s)
    )
    return free_running.divergence_records(ORIGIN, list(found), prompts, 12)


def value(records: list[Record], check: str) -> float:
    (found,) = [record.value for record in records if record.check == f"quality.{check}"]
    return found


def test_an_exact_cache_says_the_same_for_as_long_as_it_is_asked() -> None:
    def cached(model: Model, prompt: Tokens, sampler: Sampler) -> Run:
        return free_running.run_cached(model, Toy(), "fp16", prompt, sampler, 12)

    records = divergences(cached)
    assert value(records, "greedy_divergence") == value(records, "sampled_divergence") == 12
    assert state("quality.arms_unequal", records) == "pass"
    sampled = next(r for r in records if r.check == "quality.sampled_divergence")
    assert sampled.comparisons == 6
    assert {run["seed"] for run in sampled.detail["runs"]} == {1, 2, 3}
    given = [tuple(run["given"]) for r in records if "runs" in r.detail for run in r.detail["runs"]]
    assert all(mine == theirs for mine, theirs in given)
    assert len(set(given)) == 8  # every prompt with every sampler is something else


def test_swapped_heads_diverge() -> None:
    def cached(model: Model, prompt: Tokens, sampler: Sampler) -> Run:
        return free_running.run_cached(model, Swapped(), "fp16", prompt, sampler, 12)

    records = divergences(cached)
    assert value(records, "greedy_divergence") < 6
    assert state("quality.arms_unequal", records) == "pass"


@pytest.mark.parametrize(
    ("unfair", "runs"),
    [
        (lambda m, p, s: full(m, p[1:], s), 8),
        (lambda m, p, s: full(m, p, Sampler(s.temperature, s.seed + 1)), 6),
        (lambda m, p, s: full(m, p, Sampler(s.temperature * 0.9, s.seed)), 6),
        (lambda m, p, s: full(m, p, Sampler(0.5, s.seed)), 8),
    ],
    ids=["shorter prompt", "other seed", "other temperature", "other sampler"],
)
def test_an_arm_that_was_given_something_else_turns_the_rule_red(
    unfair: Callable[[Model, Tokens, Sampler], Run], runs: int
) -> None:
    records = divergences(unfair)
    assert value(records, "arms_unequal") == runs
    assert state("quality.arms_unequal", records) == "reject"


def test_sampling_follows_the_distribution_and_the_seed() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    sampler, ledger = Sampler(1.0, seed=7), arms.Ledger()
    chosen = np.array([sampler.choose(logits, step, ledger) for step in range(4000)])
    shares = np.bincount(chosen, minlength=4) / len(chosen)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.15, 0.05], atol=0.03)
    again = [Sampler(1.0, seed=7).choose(logits, step, ledger) for step in range(50)]
    other = [Sampler(1.0, seed=8).choose(logits, step, ledger) for step in range(50)]
    assert again == chosen[:50].tolist() != other
    assert Sampler().choose(np.zeros(4, np.float32), 0, ledger) == 0


# --- predictions ----------------------------------------------------------------------------------


def test_figures_by_position_cover_the_text_and_follow_the_damage() -> None:
    model = tiny("mqa")
    captured = capture(model, tiny_tokens(200))
    hidden = captured.hidden.copy()
    hidden[150:] *= np.float32(0.8)
    found = compare_predictions(model, captured, hidden)
    assert not found.drift[:150].any()
    assert found.topk[:150].min() == 1.0
    np.testing.assert_allclose(found.drift[150:], 0.2, atol=1e-5)
    rows = by_position(found, 40)
    assert (rows[0]["from"], rows[-1]["to"]) == (40, 200)
    assert all(a["to"] == b["from"] for a, b in itertools.pairwise(rows))
    assert rows[0]["kl"] == 0 < rows[-1]["kl"]


def test_layers_of_the_same_pass_do_not_drift_and_of_another_do() -> None:
    model, tokens = tiny("gqa"), tiny_tokens(80)
    captured = capture(model, tokens, residuals=True)
    same = LayerDrift(model, captured, 10)
    model.hidden(tokens, model.full_attention(), watch=same.watch)
    assert same.error == same.logits == [0.0, 0.0]
    assert same.cosine == pytest.approx([1.0, 1.0])
    other = LayerDrift(model, captured, 10)
    with Swapped().prepare(kvassay.preset("fp16", **model.config.shape)) as cache:
        model.hidden(tokens, CacheAttention(cache), watch=other.watch)
    assert min(other.error) > 0.1
    assert min(other.logits) > 0.1
    assert max(other.cosine) < 0.99


def test_intervals_cover_the_mean_of_a_text_that_depends_on_itself() -> None:
    """Of an autoregressive series, whose independent interval would miss nearly half the time."""
    random, missed = np.random.default_rng(2), 0
    for _ in range(100):
        steps = random.standard_normal(900)
        for t in range(1, len(steps)):
            steps[t] += 0.8 * steps[t - 1]
        low, high = intervals.block_interval(steps)
        missed += not low <= 0.0 <= high
    assert missed <= 16
    assert all(math.isnan(end) for end in intervals.block_interval(np.ones(63)))
    assert intervals.block_interval(np.ones(640)) == pytest.approx([1.0, 1.0])
    assert intervals.mean_interval(np.ones(5)) == [1.0, 1.0]
    assert math.isnan(intervals.mean_interval(np.ones(1))[0])


# --- control lanes and exact zeros ----------------------------------------------------------------


def test_the_lanes_of_a_real_backend_keep_their_bands() -> None:
    records = lanes.measure("native", native(), "turbo")
    assert {record.subject for record in records} == {
        "fp16 only",
        "transform only",
        "quantizer only",
        "whole",
        "control lanes",
    }
    assert state("quality.lane_alarms", records) == "pass"
    noise = next(record for record in records if record.subject == "transform only")
    assert 0 < noise.value < lanes.NOISE


def test_a_float_cache_turns_the_lanes_red() -> None:
    records = lanes.measure("floats", "scalar", "turbo")
    assert state("quality.lane_alarms", records) == "reject"
    alarm = next(record for record in records if record.check == "quality.lane_alarms")
    assert alarm.detail["outside"] == ["fp16 only", "whole"]


@pytest.mark.parametrize(
    ("name", "kl", "red"),
    [
        ("transform only", 0.0, True),  # the transform never ran
        ("transform only", 1e-7, True),
        ("transform only", 1e-12, False),
        ("fp16 only", 0.0, True),
        ("fp16 only", 1e-3, True),
        ("fp16 only", 2e-7, False),
    ],
)
def test_bands_have_two_ends(name: str, kl: float, red: bool) -> None:
    band = lanes.FP16 if name == "fp16 only" else (float(np.finfo(float).tiny), lanes.NOISE)
    records = lanes.lane_records(ORIGIN, {name: (kl, band)}, 10)
    assert (state("quality.lane_alarms", records) == "reject") == red


def test_a_float_cache_is_too_good_and_a_quantized_one_is_not() -> None:
    kept = tiny_transformer.measure("floats", "scalar", "kivi", ["mqa"])
    assert state("quality.exact_zeros", kept) == "reject"
    (alarm,) = [record for record in kept if record.check == "quality.exact_zeros"]
    assert list(alarm.detail["figures"]) == ["quality.tiny_kl, mqa, window 32"]
    for preset in ("kivi", "fp16"):
        records = tiny_transformer.measure("native", native(), preset, ["mqa"])
        assert state("quality.exact_zeros", records) == "pass"


# --- prefill and shadow ---------------------------------------------------------------------------


class ManyCache(ToyCache):
    """Takes several queries at once, causally."""

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        if q.ndim == 2:
            return super().attend(layer, q)
        held = self._kv[layer]
        k, v = (np.concatenate([pair[i] for pair in held]) for i in (0, 1))
        out = np.empty_like(q)
        for row in range(len(q)):
            seen = len(k) - len(q) + row + 1
            self._kv[layer] = [(k[:seen], v[:seen])]
            out[row] = super().attend(layer, q[row])
        self._kv[layer] = held
        return out


def test_chunks_append_first_and_ask_causally() -> None:
    model, tokens = tiny("gqa"), tiny_tokens(50)
    spec = kvassay.preset("fp16", **model.config.shape)
    right = model.forward(tokens, model.full_attention())
    found = model.forward(tokens, CacheAttention(ManyCache(spec, Toy()), chunk=16))
    np.testing.assert_allclose(found, right, atol=1e-4)
    with pytest.raises(InputError, match="chunk is 0"):
        CacheAttention(ManyCache(spec, Toy()), chunk=0)


def shadowed(backend: kvassay.Backend) -> list[Record]:
    """The shadow of a tiny model's pass."""
    model, tokens = tiny("gqa"), tiny_tokens(160)
    spec = kvassay.preset("kivi", **model.config.shape)
    with backend.prepare(spec) as cache:
        shade = shadow.ShadowAttention(cache, len(tokens), 7)
        model.hidden(tokens, shade)
    return shadow.shadow_records(ORIGIN, shade.kl, "text")


def test_a_cache_like_its_shadow_passes_and_swapped_heads_do_not() -> None:
    good, *layers = shadowed(Toy())
    assert [record.subject for record in layers] == ["layer 0", "layer 1"]
    assert good.value < 1e-9
    assert good.comparisons == 2 * 6 * len(range(95, 160, 7))
    assert state("quality.shadow_kl", [good]) == "pass"
    bad, *layers = shadowed(Swapped())
    assert state("quality.shadow_layer_kl", layers) == "reject"
    assert bad.value > 0.05
    assert state("quality.shadow_kl", [bad]) == "reject"


def test_all_layers_are_looked_at_where_each_has_a_sealed_page() -> None:
    model, tokens = tiny("gqa"), tiny_tokens(140)
    other = {"layer_overrides": {1: {"window": 60}}}
    spec = kvassay.preset("kivi", **model.config.shape, **other)
    with Toy().prepare(spec) as cache:
        shade = shadow.ShadowAttention(cache, len(tokens), 7)
        model.hidden(tokens, shade)
    assert [len(rows) for rows in shade.kl.values()] == [len(range(123, 140, 7))] * 2


def test_a_text_that_seals_no_page_has_no_shadow() -> None:
    (record,) = shadow.shadow_records(ORIGIN, {}, "text")
    assert (record.comparisons, state("quality.shadow_kl", [record])) == (0, "not measured")


# --- the transform --------------------------------------------------------------------------------


@pytest.fixture
def quick_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model instead of a real one, and few rounds."""
    monkeypatch.setattr(transform, "real_model", lambda name: tiny("gqa"))
    monkeypatch.setattr(transform, "_ROUNDS", 10)


@pytest.mark.usefixtures("quick_tiny")
def test_a_transform_that_costs_more_than_it_saves_is_rejected() -> None:
    (record,) = transform.measure("slow", "scalar", "turbo", "tiny")
    assert record.value > 1
    found = {**vars(record), "comparisons": 10}  # however unsteady this machine is
    assert state("quality.transform_share", [Record(**found)]) == "reject"


@pytest.mark.usefixtures("quick_tiny")
def test_the_transform_of_the_c_backend_is_a_small_share() -> None:
    (record,) = transform.measure("native", native(), "turbo", "tiny")
    assert 0 <= record.value < 1
    assert record.detail["instructions"] is None
    assert record.detail["saved_bytes"] > 0


def made(**changed: float) -> transform.Transform:
    given = {
        "nanoseconds": 500.0,
        "instructions": None,
        "saved_bytes": 10_000,
        "bandwidth": 1e10,
        "context": 4096,
        **changed,
    }
    return transform.Transform(**given)  # type: ignore[arg-type]


def test_the_share_is_time_over_time() -> None:
    assert made().share == pytest.approx(0.5)
    assert made(nanoseconds=-3.0).share == 0.0
    assert made(saved_bytes=0).share == math.inf
    records = [transform.transform_record(ORIGIN, made(nanoseconds=1500.0), 10, True)]
    assert state("quality.transform_share", records) == "reject"
    shaky = [transform.transform_record(ORIGIN, made(), 10, False)]
    assert state("quality.transform_share", shaky) == "not measured"


# --- the real model -------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.long
@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_a_real_model_runs_through_every_measure(model: str) -> None:
    """Gemma 3 too, with its sliding layers: an uninstalled model fails here, with its line."""
    variant = native()
    records = free_running.measure("native", variant, "turbo", model, 384, said=8)
    records += prefill.measure("native", variant, "turbo", model, 384)
    records += shadow.measure("native", variant, "turbo", model, 384, 31)
    for rule in ("quality.arms_unequal", "quality.shadow_kl"):
        assert state(rule, records) == "pass"
    (kl,) = [record for record in records if record.check == "quality.prefill_kl"]
    assert 0 < kl.value < 0.2
    captured = real_model.fixed_text(model, 384)
    assert log_softmax(real_model.real_model(model).logits(captured.hidden[-1:])).max() < 0
