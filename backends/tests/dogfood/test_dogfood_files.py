"""Model files that the page must refuse; its suites, which must see what is wrong."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import dogfood
import pytest

WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"metadata": {"general.architecture": "gpt2"}}, "architecture gpt2"),
    "experts": ({"metadata": {"llama.expert_count": 4}}, "llama.expert_count is set"),
    "no layers": ({"metadata": {"llama.block_count": 0}}, "layers is 0"),
    "too many layers": ({"metadata": {"llama.block_count": 2**32 - 1}}, "tensor blk.2"),
    "too few layers": ({"metadata": {"llama.block_count": 1}}, "tensor blk.1.attn_norm.weight is"),
    "head count": ({"metadata": {"llama.attention.head_count": 0}}, "must be positive"),
    "head dim": ({"metadata": {"llama.attention.key_length": 8}}, "no multiple of 16"),
    "kv heads": ({"metadata": {"llama.attention.head_count_kv": 3}}, "does not divide"),
    "width": ({"metadata": {"llama.embedding_length": 2**31}}, "expected"),
    "ffn": ({"metadata": {"llama.feed_forward_length": 100}}, "no multiple of 32"),
    "eps": ({"metadata": {"llama.attention.layer_norm_rms_epsilon": float("nan")}}, "finite"),
    "eos": ({"metadata": {"tokenizer.ggml.eos_token_id": 10**6}}, "beyond the vocabulary"),
    "merges": ({"metadata": {"tokenizer.ggml.merges": ["a b"]}}, "not two tokens"),
    "token types": ({"metadata": {"tokenizer.ggml.token_type": [1]}}, "does not match"),
    "tokenizer": ({"metadata": {"tokenizer.ggml.model": "llama"}}, "supported: gpt2"),
    "missing key": ({"omit": ["llama.block_count"]}, "llama.block_count is missing"),
    "missing tensor": ({"omit": ["output_norm.weight"]}, "output_norm.weight is missing"),
    "type": ({"kinds": {"blk.0.ffn_up.weight": "Q5_1"}}, "GGUF type 7"),
    "norm type": ({"kinds": {"output_norm.weight": "Q8_0"}}, "not stored as F32"),
}


def test_damaged_and_foreign_files_are_refused_by_name(site: Path, tmp_path: Path) -> None:
    paths = {
        name: dogfood.write_model(tmp_path / f"{name}.gguf", **how)
        for name, (how, _) in WRITTEN.items()
    }
    good = dogfood.write_model(tmp_path / "good.gguf")
    found = dogfood.drive(site, "refusals", models=[str(good), *map(str, paths.values())])
    assert found[0] == ""
    refused = dict(zip(WRITTEN, found[1:], strict=True))
    for name, (_, reason) in WRITTEN.items():
        assert refused[name].startswith("ModelError: "), (name, refused[name])
        assert reason in refused[name], name


def test_hostile_bytes_are_refused(site: Path, tmp_path: Path) -> None:
    data = dogfood.write_model(tmp_path / "good.gguf").read_bytes()
    hostile = {
        "empty": b"",
        "magic": b"GGML" + data[4:],
        "version": data[:4] + struct.pack("<I", 99) + data[8:],
        "tensors": data[:8] + struct.pack("<Q", 2**60) + data[16:],
        "keys": data[:16] + struct.pack("<Q", 2**64 - 1) + data[24:],
        "key length": data[:24] + struct.pack("<Q", 2**63) + data[32:],
        "array": _with_huge_array(data),
        "offset": _with_far_tensor(data),
        "infinite scale": data[:-20] + struct.pack("<e", float("inf")) + data[-18:],
    }
    hostile |= {
        f"cut {n}": data[:n] for n in (1, 7, 23, 24, 60, 1000, len(data) // 2, len(data) - 1)
    }
    paths = []
    for name, content in hostile.items():
        paths.append(tmp_path / f"{name}.bin")
        paths[-1].write_bytes(content)
    found = dogfood.drive(site, "refusals", models=list(map(str, paths)))
    for name, answer in zip(hostile, found, strict=True):
        assert answer.startswith("ModelError: "), (name, answer)
    assert "past the end" in found[list(hostile).index("array")]
    assert "not finite" in found[list(hostile).index("infinite scale")]


def _with_huge_array(data: bytes) -> bytes:
    """The vocabulary's array says that it has 2^40 strings."""
    key = b"tokenizer.ggml.tokens"
    at = data.index(key) + len(key) + 8  # type of the value, type of the elements
    return data[:at] + struct.pack("<Q", 2**40) + data[at + 8 :]


def _with_far_tensor(data: bytes) -> bytes:
    name = b"output_norm.weight"
    at = data.index(name) + len(name) + 4 + 8 + 4  # axes, one extent, type
    return data[:at] + struct.pack("<Q", 2**40) + data[at + 8 :]


@pytest.mark.parametrize("leak", [0, 200_000])
def test_the_memory_suite_sees_a_leak(site: Path, leak: int) -> None:
    found = dogfood.drive(site, "memory", leak=leak)
    assert found["sessions"] == 100
    assert found["comparisons"] == 99
    assert (found["value"] > 0) == bool(leak)


def test_speed_rests_on_samples_that_the_clock_can_tell(site: Path) -> None:
    variant = "simd128" if "simd128" in dogfood.built() else "scalar"
    records = dogfood.drive(site, "speed", variant=variant)
    assert len(records) == 9
    assert {record["comparisons"] for record in records} == {5}
    assert all(record["least_steps"] >= 50 and record["value"] > 0 for record in records)


def test_modules_find_the_names_that_they_import(site: Path) -> None:
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.mjs"))
    found = dogfood.drive(site, "exports", modules=[name for name in names if name != "app.mjs"])
    assert len(found) > 20


RULE = {"statistic": "sum", "maximum": 0, "minimum": None}
CHECKS = ("run.errors", "parity.mismatches", "parity.cross_read", "wasm.growth_events")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "pass"),
        ({"value": 1}, "reject"),
        ({"comparisons": 0}, "not measured"),
        ({"variant": "simd128"}, "not measured"),
    ],
)
@pytest.mark.parametrize("check", CHECKS)
def test_the_verdict_is_the_worst_of_all_rules(
    site: Path, check: str, change: dict[str, Any], verdict: str
) -> None:
    rules = [{"name": name, "check": name, **RULE} for name in CHECKS]
    plain = {"variant": "scalar", "value": 0, "comparisons": 5}
    records = [{"check": name, **plain} | (change if name == check else {}) for name in CHECKS]
    request = {"rules": rules, "records": records}
    assert dogfood.drive(site, "judge", variants=["scalar"], **request)["verdict"] == verdict
    assert dogfood.drive(site, "judge", variants=[], **request)["verdict"] == "not measured"
