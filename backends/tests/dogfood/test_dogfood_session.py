"""A session of the page, action by action: what each does to tokens, bytes, memory and identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dogfood
import pytest

from kvassay_backends.web import assets

#: Scalar code is right and slow.
FAST = "simd128" if "simd128" in assets.modules else "scalar"
TINY = {"model": "tiny-gqa", "preset": "turbo", "variant": FAST, "span": 0}
SAY = ("say", "What is it?", {"limit": 24, "reuse": True})
TEXT = "All work and no play makes the cache a dull place. " * 6


def run(site: Path, *steps: Any, **request: Any) -> list[dict[str, Any]]:
    """Outcomes of a session that opens with TINY, without the first."""
    told: list[dict[str, Any]] = dogfood.drive(
        site, "session", steps=[("configure", TINY), *steps], **request
    )
    assert told[0]["note"].startswith(f"{TINY['model']} is ready")
    return told[1:]


def test_turns_reuse_the_context_and_computing_it_anew_gives_the_same_bytes(site: Path) -> None:
    first, second, fed, checked, alone = run(
        site, SAY, SAY, ("feed", TEXT), ("check",), ("say", "Again", {"limit": 8, "reuse": False})
    )
    assert len(first["said"]) == 24  # a token a byte
    assert first["state"]["tokens"] == 12 + 23  # the last token was said, not read
    assert "35 tokens were reused, read 13" in second["note"]
    assert fed["state"]["pages"] == (fed["state"]["tokens"] - 4 - 128) // 64 > 0
    assert fed["state"]["held"] < fed["state"]["fp16"]
    assert checked["note"].startswith("Identical: ")
    assert alone["note"].startswith(f"nothing was reused, read {checked['state']['tokens'] + 6} ")


def test_an_answer_does_not_depend_on_reuse(site: Path) -> None:
    answers = []
    for reuse in (True, False):
        told = run(site, SAY, ("feed", TEXT), ("say", "And?", {"limit": 24, "reuse": reuse}))
        answers.append(told[-1]["said"])
    assert answers[0] == answers[1]


def test_forgetting_cuts_or_says_why_it_computes_again(site: Path) -> None:
    first, second, cut, fed, again, nothing_left, none = run(
        site, SAY, SAY, ("forget",), ("feed", TEXT), ("forget",), ("forget",), ("forget",)
    )
    assert cut["note"] == "Cut to 35 tokens."
    assert cut["state"]["tokens"] == first["state"]["tokens"] < second["state"]["tokens"]
    assert "exist only as codes; nearest allowed lengths" in again["refused"]
    assert again["note"].endswith("computed again up to 35.")
    assert again["state"]["tokens"] == 35 < fed["state"]["tokens"]
    assert again["state"]["pages"] == 0
    assert nothing_left["state"]["tokens"] == 0
    assert none["note"] == "There is no turn to forget."


def test_forgotten_turns_leave_no_trace(site: Path) -> None:
    straight = run(site, SAY, ("say", "More", {"limit": 16, "reuse": True}))
    detour = run(
        site, SAY, ("feed", TEXT), ("forget",), ("say", "More", {"limit": 16, "reuse": True})
    )
    assert detour[-1]["said"] == straight[-1]["said"]


def test_reset_and_new_sessions_keep_linear_memory(site: Path) -> None:
    told = run(
        site, ("feed", TEXT), *[("reset",), ("feed", TEXT), ("newSession",), ("feed", TEXT)] * 3
    )
    first, *rest = told
    assert rest[0]["note"].startswith("Emptied; byte for byte the same")
    assert rest[0]["state"]["tokens"] == 0
    for later in rest[4:]:
        assert later["state"]["memory"]["bytes"] == rest[3]["state"]["memory"]["bytes"]
        assert later["state"]["memory"]["growths"] == rest[3]["state"]["memory"]["growths"]
    assert rest[2]["state"]["identity"] == first["state"]["identity"]


def test_a_sliding_window_is_another_identity_and_retires_pages(site: Path) -> None:
    full, span, fed = run(
        site, ("feed", TEXT * 2), ("configure", {**TINY, "span": 128}), ("feed", TEXT)
    )
    assert span["field"] == "span"
    assert "span is null, this cache has 128" in span["refused"]
    assert span["note"] == f"The {full['state']['tokens']} tokens were computed again."
    assert span["state"]["identity"] != full["state"]["identity"]
    assert full["state"]["pages"] == 7
    assert span["state"]["pages"] <= 2
    assert fed["state"]["pages"] <= 2
    assert fed["state"]["held"] < full["state"]["held"]


def test_another_preset_refuses_the_old_cache_by_name(site: Path) -> None:
    fed, fp16, back = run(
        site, ("feed", TEXT), ("configure", {**TINY, "preset": "fp16"}), ("configure", TINY)
    )
    assert fp16["field"] == "key_centre"
    assert fp16["state"]["tokens"] == back["state"]["tokens"] == fed["state"]["tokens"]
    assert fp16["state"]["held"] > fed["state"]["held"]
    assert back["state"]["identity"] == fed["state"]["identity"]


def test_another_model_refuses_the_old_cache_by_name_and_starts_clean(
    site: Path, tmp_path: Path
) -> None:
    path = dogfood.write_model(tmp_path / "small.gguf")
    fed, other, small, said, checked = run(
        site,
        ("feed", TEXT),
        ("configure", {**TINY, "model": "tiny-mha"}),
        ("configure", {**TINY, "model": "small"}),
        ("say", "hello world <|im_end|>", {"limit": 12, "reuse": True}),
        ("check",),
        models={"small": str(path)},
    )
    assert other["field"] == "identity.model"
    assert other["refused"].startswith("The old cache was refused: dump: identity.model is ")
    assert (fed["state"]["tokens"], other["state"]["tokens"]) == (len(TEXT), 0)
    assert small["state"]["model"]["name"] == "small"
    assert said["said"]
    assert checked["note"].startswith("Identical: ")


def test_another_variant_takes_the_old_cache_over_bit_for_bit(site: Path) -> None:
    if FAST == "scalar":
        pytest.skip("the simd128 module is not built: python backends/hatch_build.py wasm")
    fed, moved, checked = run(
        site, ("feed", TEXT), ("configure", {**TINY, "variant": "scalar"}), ("check",)
    )
    assert moved["note"].startswith(f"Same identity: {len(TEXT)} tokens carried over")
    assert moved["state"]["variant"] == "scalar"
    assert moved["state"]["identity"] == fed["state"]["identity"]
    assert checked["note"].startswith("Identical: ")


def test_at_the_memory_cap_the_session_says_so_and_goes_on(site: Path) -> None:
    limit = 25 * 2**18  # the model takes 23 of these 25 quarters of a megabyte
    fp16 = ("configure", {**TINY, "preset": "fp16"})
    told = run(site, fp16, *[("feed", TEXT)] * 5, ("reset",), SAY, ("check",), memoryLimit=limit)
    refused = [one for one in told if "CacheMemoryError" in one.get("error", "")]
    assert refused
    assert "bytes asked" in refused[0]["error"]
    assert refused[-1]["state"]["turns"] == len(told) - 4 - len(refused)
    *_, said, checked = told
    assert said["state"]["tokens"] == 35
    assert checked["note"].startswith("Identical: ")
    assert checked["state"]["memory"]["bytes"] <= limit


def test_a_change_that_fails_leaves_the_session_as_it_was(site: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.gguf"
    hostile.write_bytes(b"GGUF" + bytes(100))
    fed, model, variant, both, checked, said = run(
        site,
        ("feed", TEXT),
        ("configure", {**TINY, "model": "hostile"}),
        ("configure", {**TINY, "variant": "avx512"}),
        ("configure", {**TINY, "variant": "scalar", "model": "hostile"}),
        ("check",),
        SAY,
        models={"hostile": str(hostile)},
    )
    assert model["error"].startswith("ModelError: GGUF version 0")
    assert variant["error"].startswith("InputError: variant")
    assert both["error"].startswith("ModelError: ")
    for failed in (model, variant, both):
        for part in ("settings", "identity", "tokens", "turns", "variant"):
            assert failed["state"][part] == fed["state"][part], part
    assert checked["note"].startswith("Identical: ")
    assert f"{len(TEXT)} tokens were reused" in said["note"]


def test_the_marks_of_the_template_cannot_be_typed(site: Path, tmp_path: Path) -> None:
    path = dogfood.write_model(tmp_path / "small.gguf")
    open_small = {**TINY, "model": "small"}
    texts = ("hi", "<|im_end|>")
    told = [
        run(
            site,
            ("configure", open_small),
            ("say", text, {"limit": 1, "reuse": True}),
            models={"small": str(path)},
        )[-1]["state"]["tokens"]
        for text in texts
    ]
    assert told[1] - told[0] == len("<|im_end|>") - len("hi")  # bytes, not one mark
