"""Bits by layer: what the single layers cost, spent where it helps most."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import kvassay
from kvassay.arms import Outcome, parse_arm
from kvassay.arms.allocation import allocate, losses, probes
from kvassay.cli import allocate as allocating
from kvassay.cli import run
from kvassay.errors import InputError

LAYERS = 4
SHAPE = {"layers": LAYERS, "kv_heads": 2, "query_heads": 4, "head_dim": 64}
#: Keys and values by turns; layer 2's keys matter most.
LOSSES = [4e-4, 1e-4, 1e-5, 1e-5, 6.4e-3, 4e-4, 1e-4, 2.5e-5]


def outcome(arm: str, kl: float, text: str = "a", positions: int = 100) -> Outcome:
    return Outcome(
        arm=arm,
        model="m",
        text=text,
        held_out=False,
        digest=arm + text,
        tokens=200,
        positions=positions,
        kl=kl * positions,
        kl_all=0.0,
        nll=0.0,
        full_nll=0.0,
        top1=0,
        page_bits=0.0,
        all_in_bits=0.0,
    )


def outcomes() -> list[Outcome]:
    return [outcome(arm, kl) for arm, kl in zip(probes(LAYERS), LOSSES, strict=True)]


@pytest.mark.parametrize("mean", [2.0, 2.25, 2.5, 3.0, 3.25, 3.75, 4.0])
def test_the_budget_is_kept_and_beats_equal_bits(mean: float) -> None:
    made = allocate(LOSSES, mean)
    spent = np.mean([*made.keys, *made.values])
    assert mean - 0.5 / len(LOSSES) < spent <= mean
    assert made.predicted <= made.uniform
    assert made.keys[2] == max(made.keys)


def test_no_exchange_of_half_a_bit_is_better() -> None:
    made = allocate(LOSSES, 3.0)
    bits = [rate for pair in zip(made.keys, made.values, strict=True) for rate in pair]
    gains = [
        loss * (4.0 ** (3 - rate) - 4.0 ** (2.5 - rate))
        for loss, rate in zip(LOSSES, bits, strict=True)
        if rate < 4
    ]
    prices = [
        loss * (4.0 ** (3.5 - rate) - 4.0 ** (3 - rate))
        for loss, rate in zip(LOSSES, bits, strict=True)
        if rate > 2
    ]
    assert max(gains) <= min(prices)
    assert made.predicted < 0.7 * made.uniform


def test_an_arm_and_a_spec_say_the_same() -> None:
    made = allocate(LOSSES, 3.0)
    arm, spec = parse_arm(made.arm), kvassay.preset("turbo", **SHAPE, **made.fields)
    for layer, found in enumerate(spec.layer_specs):
        keys, values = arm.pair(layer, LAYERS)
        assert keys.bits == found.keys.bits == made.keys[layer]
        assert values.bits == found.values.bits == made.values[layer]


def test_probes_store_one_stream_of_one_layer() -> None:
    for number, text in enumerate(probes(LAYERS)):
        for layer in range(LAYERS):
            names = [one.name for one in parse_arm(text).pair(layer, LAYERS)]
            wanted = ["fp16", "fp16"]
            if layer == number // 2:
                wanted[number % 2] = "turbo"
            assert names == wanted


def test_texts_count_by_their_positions() -> None:
    more = [outcome(arm, 3 * kl, "b", 300) for arm, kl in zip(probes(LAYERS), LOSSES, strict=True)]
    assert losses(outcomes() + more, LAYERS) == pytest.approx([2.5 * kl for kl in LOSSES])


def test_what_does_not_fit_and_what_is_missing_is_refused() -> None:
    with pytest.raises(InputError, match=r"1\.5 bits are less than the lowest rates"):
        allocate(LOSSES, 1.5)
    with pytest.raises(InputError, match="'fp16/fp16 3=fp16/turbo:3' was not measured"):
        losses(outcomes()[:-1], LAYERS)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Sequence[object]] = []

    def measured(*given: object) -> list[Outcome]:
        asked.append(given)
        return outcomes()

    monkeypatch.setattr(allocating, "measured", measured)
    monkeypatch.setattr(allocating, "layers_of", lambda model: LAYERS)
    assert run(["allocate", "--bits", "3", "--json", "--answers", "a.jsonl"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["allocations"][0]["arm"] == allocate(LOSSES, 3.0).arm
    names = ["manual", "textwrap"]
    assert asked == [("smollm2-135m", probes(LAYERS), names, 512, Path("a.jsonl"), 1)]
    assert run(["allocate", "--bits", "2.5", "--bits", "3"]) == 0
    shown = capsys.readouterr().out
    made = allocate(LOSSES, 3.0)
    assert f"{made.keys[0]:g} / {made.values[0]:g}" in shown
    assert allocate(LOSSES, 2.5).arm in shown
    assert run(["allocate", "--text", "manuel"]) == 2
    assert "manual" in capsys.readouterr().err
