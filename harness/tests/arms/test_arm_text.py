"""Arms by their text."""

from __future__ import annotations

from typing import Any

import pytest

import kvassay
from kvassay.arms import Arm, parse_arm
from kvassay.arms.arm import Stream
from kvassay.arms.standard import ABLATIONS, STANDARD
from kvassay.errors import SpecError

SHAPE: dict[str, Any] = {"layers": 3, "kv_heads": 1, "query_heads": 3, "head_dim": 64}


def test_codecs_policy_and_layers() -> None:
    arm = parse_arm(
        "turbo:3.5,choice=true/turbo:3,centre=frozen window=64 sinks=0 page=32 0,-1=fp16"
    )
    keys = Stream("turbo", 3.5, (("choice", True),))
    values = Stream("turbo", 3.0, (("centre", "frozen"),))
    fp16 = Stream("fp16")
    assert arm.codecs == (keys, values)
    assert (arm.window, arm.sinks, arm.page) == (64, 0, 32)
    assert [arm.pair(layer, 4) for layer in range(4)] == [
        (fp16, fp16),
        (keys, values),
        (keys, values),
        (fp16, fp16),
    ]


def test_one_codec_serves_both_streams_and_defaults_are_those_of_the_goals() -> None:
    arm = parse_arm("kivi:2")
    assert arm.codecs == (Stream("kivi", 2.0), Stream("kivi", 2.0))
    assert (arm.window, arm.sinks, arm.page) == (32, 4, 64)


def test_presets_take_fields_of_a_spec() -> None:
    arm = parse_arm("preset:turbo window=32 keys=turbo:4")
    assert arm == Arm(arm.text, preset="turbo", fields={"window": 32, "keys": "turbo:4"})
    with pytest.raises(SpecError, match="is a preset"):
        arm.pair(0, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an arm is empty"),
        ("turbo:", "'turbo:' is not a codec"),
        ("/kivi:2", "'' is not a codec"),
        ("turbo:x", "'turbo:x' is not a codec"),
        ("kivi:2 widow=3", "cannot read 'widow=3'"),
        ("kivi:2 window=-1", "cannot read 'window=-1'"),
        ("kivi:2 page=0", "cannot read 'page=0'"),
        ("kivi:2 window", "'window' is not a setting"),
        ("kivi:2,group", "'group' is not a setting"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_arm(text)


def test_a_layer_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SpecError, match="no layer 9 among 4"):
        parse_arm("kivi:2 9=fp16").pair(0, 4)


def test_all_arms_that_ship_can_be_made_and_are_named_once() -> None:
    texts = [*STANDARD, *dict.fromkeys(one for arms in ABLATIONS.values() for one in arms)]
    for text in texts:
        arm = parse_arm(text)
        assert arm.text == text
        if arm.preset:
            kvassay.preset(arm.preset, **SHAPE, **arm.fields)
            continue
        for layer in range(3):
            for role, one in zip(("key", "value"), arm.pair(layer, 3), strict=True):
                params = dict(one.params)
                if params.get("centre") == "rope":
                    params["rope_base"] = 1e4
                kvassay.codec(one.name, bits=one.bits, head_dim=64, role=role, **params)
    assert len(set(STANDARD)) == len(STANDARD)
    assert {"window", "sinks", "rounds", "scale", "sign projection"} <= set(ABLATIONS)
