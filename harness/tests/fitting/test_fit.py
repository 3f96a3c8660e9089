"""Fitting on tiny transformers: what is predicted, chosen, confirmed and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import kvassay
from kvassay import models
from kvassay.arms import forward, measure, parse_arm, running
from kvassay.arms.arm import Arm
from kvassay.cli import run
from kvassay.errors import InputError
from kvassay.fitting import Choice, Losses, Stored, Target, choose, fit, losses, measured_losses
from kvassay.fitting.candidates import KEYS, VALUES
from kvassay.models import Model, Tokens, norms_of, tiny, tiny_tokens
from kvassay.profiles import find

TOKENS = 300
SHAPE = {"layers": 2, "kv_heads": 2, "query_heads": 6, "head_dim": 64}


class Given:
    """A text that is its tokens."""

    def __init__(self, name: str) -> None:
        self.name, self.held_out = name, name == "b"

    def tokens(self, model: Model, n: int) -> Tokens:
        return tiny_tokens(n, ord(self.name))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = tiny("gqa")
    learn = models.capture(made, tiny_tokens(200, 7))
    monkeypatch.setattr(forward, "_to_learn_from", lambda model: learn)
    for module in (forward, losses, models):
        monkeypatch.setattr(module, "passage", Given)
    for module in (running, fit):
        monkeypatch.setattr(module, "loaded", lambda name: made)
    monkeypatch.setattr(models, "load", lambda name: made)
    return made


def measured(texts: str = "ac") -> Losses:
    return measured_losses("tiny", 2, list(texts), TOKENS, None, 1, lambda what: None)


def _each(found: Losses) -> list[tuple[str, float]]:
    """The arm of every stream, layer and codec, and its predicted loss."""
    each = []
    for layer in range(2):
        for n, codec in enumerate(KEYS):
            each.append((f"fp16/fp16 {layer}={codec.arm}/fp16", found.keys[layer, n]))
        for n, codec in enumerate(VALUES):
            each.append((f"fp16/fp16 {layer}=fp16/{codec.arm}", found.values[layer, n]))
    return each


def test_one_probe_a_layer_ranks_every_codec_of_every_stream(model: Model) -> None:
    """What is predicted from one pass a layer, beside a pass for each stream, layer and codec."""
    predicted = dict(_each(measured("a"))[::2])
    arms: list[Arm] = [parse_arm(text) for text in predicted]
    sums = dict.fromkeys(predicted, 0.0)
    for one in measure(model, arms, ["a"], TOKENS):
        sums[one.arm] += one.kl / one.positions
    rank = stats.spearmanr(list(predicted.values()), list(sums.values())).statistic
    assert rank > 0.95
    # Planted: errors of the wrong layer.
    swapped = measured("a")
    swapped = replace(swapped, keys=swapped.keys[::-1] * [[1], [100]])
    wrong = [kl for _, kl in _each(swapped)[::2]]
    assert stats.spearmanr(wrong, list(sums.values())).statistic < 0.9


def made_up(layers: int = 3) -> Losses:
    """Losses of a quarter for each bit; the keys of layer 1 cost a hundred times as much."""
    bits = np.array([one.bits + (one.centre == "page") / 4 for one in KEYS])
    value_bits = np.array([one.bits + (one.family == "kivi") for one in VALUES])
    weight = np.ones((layers, 1))
    weight[1] = 100
    return Losses(
        keys=1e-3 * weight * 4.0 ** (3 - bits),
        values=1e-4 * np.ones((layers, 1)) * 4.0 ** (3 - value_bits),
        key_bits=np.tile(bits, (layers, 1)),
        value_bits=np.tile(value_bits, (layers, 1)),
    )


@pytest.mark.parametrize("bits", [2.1, 2.5, 3.0, 3.5, 4.0])
def test_bits_are_kept_and_spent_where_they_help(bits: float) -> None:
    made = choose(made_up(), Target(bits=bits), SHAPE)
    assert bits - 0.2 < made.page_bits <= bits
    assert made.keys[1].bits == max(one.bits for one in made.keys)


def test_a_loss_takes_the_fewest_bits_that_keep_it() -> None:
    made = choose(made_up(), Target(kl=0.05), SHAPE)
    assert made.predicted <= 0.05
    fewer = choose(made_up(), Target(bits=made.page_bits - 1 / 8), SHAPE)
    assert fewer.predicted > 0.05


def test_bytes_are_those_of_a_cache() -> None:
    shape = {**SHAPE, "layers": 3}
    made = choose(made_up(), Target(bytes=1_180_000, tokens=4096), shape)
    spec = kvassay.preset("turbo", **shape, **made.fields)
    from kvassay.page.costs import Costs

    assert 1_110_000 < Costs.of(spec).held(4096) <= 1_180_000


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({}, "give one target"),
        ({"bits": 3.0, "kl": 0.1}, "give one target"),
        ({"bits": -1.0}, "above 0"),
        ({"kl": float("nan")}, "above 0"),
        ({"bytes": 5}, "go together"),
        ({"kl": 0.1, "tokens": 5}, "go together"),
    ],
)
def test_targets_that_are_none(target: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Target(**target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (Target(bits=1.5), "less than the lowest rates"),
        (Target(kl=1e-9), "nothing keeps to"),
        (Target(bytes=1000, tokens=4096), "nothing keeps to"),
    ],
)
def test_targets_out_of_reach(target: Target, said: str) -> None:
    with pytest.raises(InputError, match=said):
        choose(made_up(), target, {**SHAPE, "layers": 3})


def test_an_arm_and_a_spec_say_the_same() -> None:
    keys = (Stored("turbo", 3, "page"), Stored("kivi", 3), Stored("turbo", 3.5))
    values = (Stored("turbo", 3), Stored("turbo", 2.5), Stored("kivi", 2))
    made = Choice(keys, values, 3.0, 0.01)
    arm = parse_arm(made.arm)
    spec = kvassay.preset("turbo", **{**SHAPE, "layers": 3}, **made.fields)
    assert (spec.window, spec.sinks, spec.page_tokens) == (arm.window, arm.sinks, arm.page)
    for layer, found in enumerate(spec.layer_specs):
        pair = arm.pair(layer, 3)
        assert [(one.name, one.bits) for one in pair] == [
            (one.family, one.bits) for one in (found.keys, found.values)
        ]
        assert dict(pair[0].params).get("centre", "none") == found.key_centre == keys[layer].centre


ASKED = ["--text", "a", "--text", "c", "--confirm", "b", "--length", "300"]


def fitting(folder: Path, *more: str) -> int:
    return run(
        [
            "fit",
            "tiny",
            *ASKED,
            "--confirm-length",
            "300",
            "--jobs",
            "1",
            "--profile",
            str(folder / "profile.json"),
            *more,
        ]
    )


def test_the_command_writes_what_was_measured_on_other_text(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fitting(tmp_path, "--bits", "3") == 0
    said = capsys.readouterr()
    assert "6 probes" in said.err
    assert "1/1 done" in said.err
    found = find(tmp_path / "profile.json")
    assert found.model.digest == model.config.model_hash
    assert found.model.norms == norms_of(model)
    assert found.promise.texts == ("b",)
    assert found.promise.page_bits <= 3
    choice = choose(measured(), Target(bits=3), SHAPE)
    (one,) = measure(model, [parse_arm(choice.arm)], ["b"], TOKENS)
    assert found.promise.kl == pytest.approx(one.kl / one.positions)
    assert found.promise.kl_low <= found.promise.kl <= found.promise.kl_high
    assert found.spec().layer_specs == kvassay.preset("turbo", **SHAPE, **choice.fields).layer_specs


def test_a_run_that_was_cut_off_is_taken_up(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fitting(tmp_path, "--bits", "3") == 0
    before = json.loads((tmp_path / "profile.json").read_text())

    def never(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(forward, "_compare", never)
    assert fitting(tmp_path, "--bits", "3") == 0
    assert json.loads((tmp_path / "profile.json").read_text()) == before


def test_several_rates_are_files_of_one_folder(model: Model, tmp_path: Path) -> None:
    assert fitting(tmp_path, "--bits", "2.5", "--bits", "3.5") == 0
    small, large = (find(tmp_path / "profile" / f"{bits}.json").promise for bits in (2.5, 3.5))
    assert small.page_bits < large.page_bits
    assert small.kl > large.kl


def test_a_loss_is_kept_on_the_other_texts(model: Model, tmp_path: Path) -> None:
    assert fitting(tmp_path, "--kl", "0.02") == 0
    assert find(tmp_path / "profile.json").promise.kl <= 0.02


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--confirm", "a"], "a cannot confirm what it has chosen"),
        (["--bits", "3", "--kl", "0.1"], "one of --bits, --bytes and --kl"),
        (["--bytes", "5"], "go together"),
    ],
)
def test_what_cannot_be_fitted(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fitting(tmp_path, *more) == 2
    assert said in capsys.readouterr().err
