"""Profiles: hostile files, other models, and the doors they come in by."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import kvassay
from kvassay.cli import run
from kvassay.errors import IdentityError, SpecError
from kvassay.models import norms_digest, norms_of, tiny
from kvassay.presets import combined
from kvassay.profiles import Profile, find, read_profile, shipped, write_profile
from kvassay.spec import Identity

SHAPE = {"layers": 2, "kv_heads": 2, "query_heads": 6, "head_dim": 64}


def plain() -> dict[str, Any]:
    return {
        "format": 1,
        "name": "tiny/3",
        "target": "3 bits a value in pages",
        "model": {"name": "tiny", "digest": "a" * 64, "norms": "b" * 64, **SHAPE},
        "fields": {
            "keys": "turbo:3",
            "values": "turbo:2.5",
            "key_centre": "page",
            "window": 32,
            "sinks": 4,
            "layer_overrides": {"1": {"keys": "kivi:3", "key_centre": "none"}},
        },
        "promise": {
            "texts": ["essay"],
            "tokens": 300,
            "positions": 200,
            "page_bits": 2.9,
            "all_in_bits": 3.9,
            "kl": 0.01,
            "kl_low": 0.008,
            "kl_high": 0.012,
            "worst": 0.01,
            "perplexity_rise": -0.001,
            "top1": 0.96,
        },
        "provenance": {"made_by": "kvassay 1"},
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_profile(tmp_path / "p.json", Profile.from_dict(plain()))
    return tmp_path / "p.json"


def test_a_file_is_read_as_it_was_written(path: Path) -> None:
    assert read_profile(path).to_dict() == plain()
    assert json.loads(path.read_text()) == plain()


def test_a_cache_stores_what_the_profile_says(path: Path) -> None:
    spec = kvassay.profile(path, window=64)
    assert (spec.window, spec.layers) == (64, 2)
    assert [one.keys.name for one in spec.layer_specs] == ["turbo:3", "kivi:3"]
    assert spec.identity == Identity(model="a" * 64)
    with kvassay.load("reference").prepare(spec) as cache:
        assert cache.length == 0


HOSTILE: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "another format": (("format",), 2, "format is 2, this version reads 1"),
    "a format of another kind": (("format",), [1], "format is"),
    "no name": (("name",), "", "name is no short line"),
    "a name of a path": (("name",), "../x", "name '../x'"),
    "a name with escapes": (("target",), "a\x1b[31m", "target is no short line"),
    "a model of no digest": (("model", "digest"), "A" * 64, "model.digest is no sha256"),
    "norms of no digest": (("model", "norms"), "b" * 63, "model.norms is no sha256"),
    "a model that is a list": (("model",), [], "model is no object"),
    "layers that are text": (("model", "layers"), "2", "layers"),
    "layers without end": (("model", "layers"), 10**9, "layers"),
    "a codec that is none": (("fields", "keys"), "turbo:9", "no codec 'turbo:9'"),
    "fields that are a list": (("fields",), [], "fields is no object"),
    "a field of the model's": (("fields", "layers"), 3, "fields.layers is not a profile's"),
    "a layer that is none": (("fields", "layer_overrides"), {"2": {}}, "no layer 2 among 2"),
    "layers by words": (("fields", "layer_overrides"), {"x": {}}, "not a mapping from layer"),
    "overrides that are a list": (("fields", "layer_overrides"), [], "not a mapping from layer"),
    "an override that is text": (("fields", "layer_overrides"), {"1": "kivi"}, "layer"),
    "no texts": (("promise", "texts"), [], "promise.texts"),
    "texts of one word": (("promise", "texts"), "essay", "promise.texts"),
    "a loss below zero": (("promise", "kl"), -1, "promise.kl is -1, outside"),
    "a loss beyond floats": (("promise", "kl"), 1e400, "promise.kl is inf, outside"),
    "a loss that is true": (("promise", "kl"), True, "promise.kl is True"),
    "a loss outside its interval": (("promise", "kl"), 0.5, "outside of its interval"),
    "half a position": (("promise", "positions"), 0.5, "not a whole number"),
    "more than all": (("promise", "top1"), 1.5, "promise.top1"),
    "provenance that is text": (("provenance",), "me", "provenance is no object"),
    "provenance of numbers": (("provenance", "made_by"), 5, "provenance.made_by"),
    "a field too many": (("promise", "kll"), 1, "no field 'kll'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_data_from_outside_is_refused_by_name(case: str, tmp_path: Path) -> None:
    (*outer, last), value, said = HOSTILE[case]
    data = plain()
    inner = data
    for name in outer:
        inner = inner[name]
    inner[last] = value
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data).replace("Infinity", "1e400"))
    with pytest.raises(SpecError, match=re.escape(said)) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["model", "promise", "fields", "name", "format"])
def test_what_is_missing_is_named(name: str) -> None:
    data = plain()
    del data[name]
    with pytest.raises(SpecError, match=f"{name} is missing"):
        Profile.from_dict(data)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', "[" * 5000, "\xff"])
def test_a_file_that_is_no_profile(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError, match=re.escape(str(path))):
        read_profile(path)
    path.write_bytes(b" " * (1 << 21))
    with pytest.raises(SpecError, match="longer than"):
        read_profile(path)


def test_a_name_that_is_none_hints_at_near_ones() -> None:
    with pytest.raises(SpecError, match="neither a file nor one of kvassay's own"):
        find("smollm2-135m/9")


def test_another_model_is_refused_and_both_are_named(path: Path) -> None:
    profile = read_profile(path)
    profile.check_model("tiny", "a" * 64)
    profile.check_model("tiny", "b" * 64)
    with pytest.raises(IdentityError, match=r"'tiny/3' is of tiny, digest aaaa.*other, digest cc"):
        profile.check_model("other", "c" * 64)
    with pytest.raises(IdentityError, match="one with layers 3, not 2"):
        profile.spec(layers=3)
    for identity in (Identity(model="c" * 64), {"model": "c" * 64}):
        with pytest.raises(IdentityError, match=r"digest aaaa.*digest cccc"):
            profile.spec(identity=identity)
        with pytest.raises(IdentityError, match=r"digest aaaa.*digest cccc"):
            kvassay.preset(f"profile:{path}", **SHAPE, identity=identity)


def test_a_gate_s_other_shapes_have_the_layers_that_they_have(path: Path) -> None:
    spec = kvassay.preset(f"profile:{path}", layers=1, kv_heads=1, query_heads=1, head_dim=64)
    assert [one.keys.name for one in spec.layer_specs] == ["turbo:3"]
    spec = kvassay.preset(f"profile:{path}", **{**SHAPE, "layers": 3})
    assert [one.keys.name for one in spec.layer_specs] == ["turbo:3", "kivi:3", "turbo:3"]


def test_sliding_layers_keep_their_span_under_a_profile() -> None:
    made = combined(
        {"keys": "turbo:3", "layer_overrides": {1: {"keys": "kivi:2"}}},
        {**SHAPE, "layer_overrides": {"0": {"span": 9}, "1": {"span": 7, "sinks": 0}}},
    )
    assert [(one.keys.name, one.span) for one in made.layer_specs] == [
        ("turbo:3", 9),
        ("kivi:2", 7),
    ]


def test_norms_tell_models_apart_and_do_not_depend_on_order() -> None:
    one, other = tiny("gqa"), tiny("mha")
    assert norms_of(one) != norms_of(other)
    layers = one.weights.layers
    norms = [one.weights.norm, *(n for x in layers for n in (x.ffn_norm, x.attention_norm))]
    assert norms_digest(norms) == norms_of(one)
    moved = norms[0].copy()
    moved[3] += 1e-3  # planted: one weight of one norm
    assert norms_digest([moved, *norms[1:]]) != norms_of(one)


def test_plan_prices_a_profile(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--profile", str(path), "--tokens", "4096", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["spec"]["layer_overrides"]["1"]["keys"] == "kivi:3"
    assert 2.5 < told["page_bits"] < 4
    assert run(["plan", "--profile", str(path), "--layers", "9"]) == 2
    assert run(["plan", "--profile", "no/such"]) == 2
    assert "neither a file nor" in capsys.readouterr().err


def test_a_gate_refuses_the_profile_of_another_model(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gate", "--profile", str(path), "--backend", "reference"]) == 2
    said = capsys.readouterr().err
    assert "is of tiny, digest aaaa" in said
    assert "smollm2-135m, digest" in said


@pytest.mark.parametrize("name", shipped())
def test_what_is_shipped_is_sound(name: str) -> None:
    found = find(name)
    assert found.name == name
    assert found.promise.page_bits <= float(name.rpartition("/")[2])
    assert len(found.spec().layer_specs) == found.model.layers
