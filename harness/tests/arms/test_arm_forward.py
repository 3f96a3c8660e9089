"""Arms inside the forward pass of a tiny transformer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvassay
from kvassay.arms import (
    Arm,
    Outcome,
    StoredAttention,
    fitted,
    forward,
    measure,
    parse_arm,
    rows,
    running,
)
from kvassay.arms.outcome import read_outcomes
from kvassay.cli import run as command
from kvassay.errors import InputError, RecordError, SpecError, StateError
from kvassay.models import (
    CacheAttention,
    Capture,
    FullAttention,
    Model,
    Tokens,
    capture,
    tiny,
    tiny_tokens,
)
from kvassay.protocol import FloatArray

TOKENS = 300


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny("gqa")


@pytest.fixture(scope="module")
def learn(model: Model) -> Capture:
    return capture(model, tiny_tokens(200, 7))


def _hidden(model: Model, learn: Capture, text: str) -> tuple[FloatArray, StoredAttention]:
    arm = parse_arm(text)
    attention = StoredAttention(arm, fitted(arm, model.config, learn), model.config)
    return model.hidden(tiny_tokens(TOKENS, 3), attention), attention


def _far(a: FloatArray, b: FloatArray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "turbo:3.5/turbo:3,centre=frozen",
            {"keys": "turbo:3.5", "values": "turbo:3", "value_centre": "frozen"},
        ),
        (
            "turbo:2/turbo:2 window=7 sinks=0 page=64 1=fp16",
            {
                "keys": "turbo:2",
                "values": "turbo:2",
                "window": 7,
                "sinks": 0,
                "layer_overrides": {1: {"keys": "fp16", "values": "fp16"}},
            },
        ),
        ("kivi:2", {"keys": "kivi:2", "values": "kivi:2", "key_centre": "none"}),
    ],
)
def test_an_arm_is_what_a_cache_of_that_spec_gives(
    model: Model, learn: Capture, text: str, fields: dict[str, object]
) -> None:
    """Token by token through the native cache, whose queries have 7 bits, against all at once."""
    base = {"window": 32, "sinks": 4, "page_tokens": 64, "key_centre": "page"}
    spec = kvassay.Spec(**{**model.config.shape, **base, **fields})
    ids = tiny_tokens(TOKENS, 3)
    with kvassay.load("native").prepare(spec) as cache:
        there = model.hidden(ids, CacheAttention(cache))
    here, _ = _hidden(model, learn, text)
    full = model.hidden(ids, FullAttention())
    lost = _far(there, full)
    assert _far(here, there) < 0.25 * lost
    # The test of the test: a window that is one page wider is another cache.
    wider, _ = _hidden(model, learn, f"{text} window=96")
    assert _far(wider, there) > 0.5 * lost


def test_nothing_sealed_is_fp16_alone(model: Model, learn: Capture) -> None:
    found, attention = _hidden(model, learn, "kivi:2 window=300")
    full = model.hidden(tiny_tokens(TOKENS, 3), FullAttention())
    assert _far(found, full) < 1e-3
    assert {stored.pages for stored in attention.stored.values()} == {0}


def test_bytes_are_those_of_pages_and_of_what_is_fp16(model: Model, learn: Capture) -> None:
    _, attention = _hidden(model, learn, "q4_0/q4_1")
    config = model.config
    numbers = 4 * 64 * config.kv_heads * config.head_dim  # (300 - 36) // 64 pages of one stream
    stored = attention.stored[0]
    assert stored.pages == numbers * 4.5 / 8 + numbers * 5 / 8
    assert stored.values == 2 * numbers
    assert stored.fp16 == 2 * 2 * (TOKENS - 256) * config.kv_heads * config.head_dim


def test_tokens_do_not_see_what_comes_after_them(model: Model, learn: Capture) -> None:
    arm = parse_arm("turbo:2/turbo:2")
    layers = fitted(arm, model.config, learn)
    ids = tiny_tokens(TOKENS, 3)
    other = ids.copy()
    other[250:] = tiny_tokens(TOKENS, 4)[250:]
    one, two = (model.hidden(x, StoredAttention(arm, layers, model.config)) for x in (ids, other))
    assert _far(one[:250], two[:250]) < 1e-5
    assert _far(one[250:], two[250:]) > 0.1


def test_pages_that_a_codec_does_not_fill_are_refused(model: Model, learn: Capture) -> None:
    with pytest.raises(SpecError, match="kvarn leaves tokens of a page of 64 as fp16"):
        _hidden(model, learn, "kvarn:2,tile=128")
    _, attention = _hidden(model, learn, "kvarn:2,tile=128 page=128")
    with pytest.raises(StateError, match="one sequence"):
        model.hidden(tiny_tokens(9, 1), attention)


class Given:
    """A text that is its tokens."""

    def __init__(self, name: str) -> None:
        self.name, self.held_out = name, name == "b"

    def tokens(self, model: Model, n: int) -> Tokens:
        return tiny_tokens(n, ord(self.name))


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch, model: Model, learn: Capture) -> None:
    monkeypatch.setattr(forward, "passage", Given)
    monkeypatch.setattr(forward, "_to_learn_from", lambda model: learn)
    monkeypatch.setattr(running, "loaded", lambda name: model)


ARMS = [parse_arm(text) for text in ("fp16", "turbo:4/turbo:4", "turbo:2/turbo:2")]


def _oracle(model: Model, arm: str, learn: Capture, text: str) -> tuple[float, float]:
    """Mean KL and rise of NLL over the positions that count, in plain float64."""
    ids = tiny_tokens(TOKENS, ord(text))
    made = parse_arm(arm)
    logits = [
        model.forward(ids, attention).astype(np.float64)
        for attention in (
            FullAttention(),
            StoredAttention(made, fitted(made, model.config, learn), model.config),
        )
    ]
    p, q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in logits)
    kl = (np.exp(p) * (p - q)).sum(1)[99:-1]
    at = np.arange(99, TOKENS - 1)
    return float(kl.mean()), float((p - q)[at, ids[100:]].mean())


@pytest.mark.usefixtures("texts")
def test_outcomes_are_those_of_plain_arithmetic(model: Model, learn: Capture) -> None:
    found = {(one.arm, one.text): one for one in measure(model, ARMS, ["a", "b"], TOKENS)}
    assert len(found) == 6
    for (arm, text), one in found.items():
        kl, rise = _oracle(model, arm, learn, text)
        assert one.positions == 200
        assert one.kl / 200 == pytest.approx(kl, rel=1e-3, abs=1e-6)
        assert (one.nll - one.full_nll) / 200 == pytest.approx(rise, rel=1e-3, abs=1e-5)
        assert one.held_out == (text == "b")
    table = rows(found.values())
    assert [row.arm for row in table] == ["turbo:2/turbo:2", "turbo:4/turbo:4", "fp16"]
    assert [row.loses_to for row in table] == [None, None, None]
    assert table[0].kl > table[1].kl > table[2].kl
    assert table[2].top1 > 0.99


@pytest.mark.usefixtures("texts")
def test_a_preset_runs_through_a_cache(model: Model) -> None:
    arms = [
        parse_arm(text) for text in ("preset:turbo window=32", "turbo:3.5/turbo:3,centre=frozen")
    ]
    cache, codecs = measure(model, arms, ["a"], TOKENS)
    assert cache.kl == pytest.approx(codecs.kl, rel=0.15)
    # Streams of a page begin on multiples of 16 bytes; single codecs have no such gaps.
    assert 0 <= cache.page_bits - codecs.page_bits < 0.05


def test_losers_are_named() -> None:
    one = Outcome("good", "m", "a", False, "1", 9, 5, 0.5, 0.5, 6.0, 5.0, 4, 3.0, 4.0)
    bad = replace(one, arm="bad", kl=1.0, page_bits=3.5)
    table = rows([bad, one])
    assert [(row.arm, row.loses_to) for row in table] == [("good", None), ("bad", "good")]
    assert table[0].perplexity_rise == pytest.approx(np.exp(0.2) - 1)


@pytest.mark.usefixtures("texts")
def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "arms.jsonl"
    first = next(iter(running.run("tiny", ARMS, ["a", "b"], TOKENS, path)))
    with path.open("a") as stream:
        stream.write('{"suite": "qual')  # a line that an interruption cut off
    made: list[str] = []

    def build(arm: Arm, *rest: Any) -> Any:
        made.append(arm.text)
        return fitted(arm, *rest)

    monkeypatch.setattr(forward, "fitted", build)
    again = list(running.run("tiny", ARMS, ["a", "b"], TOKENS, path))
    assert again[0] == first
    assert sorted(made) == sorted(arm.text for arm in ARMS)  # the first one for text b alone
    assert read_outcomes(path) == {one.digest: one for one in again}
    made.clear()
    assert list(running.run("tiny", ARMS, ["a", "b"], TOKENS, path)) == again
    assert made == []


@pytest.mark.usefixtures("texts")
def test_an_executor_gives_the_same() -> None:
    alone = list(running.run("tiny", ARMS[1:2], ["a", "b"], TOKENS))
    with ThreadPoolExecutor(2) as pool:
        spread = list(running.run("tiny", ARMS[1:2], ["a", "b"], TOKENS, executor=pool))
    assert sorted(spread, key=lambda one: one.text) == alone


def test_records_of_another_form_are_refused(tmp_path: Path) -> None:
    one = Outcome("good", "m", "a", False, "1", 9, 5, 0.5, 0.5, 6.0, 5.0, 4, 3.0, 4.0)
    record = json.loads(one.to_record().to_json())
    del record["detail"]["kl"]
    path = tmp_path / "arms.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(RecordError, match="measure this arm again"):
        read_outcomes(path)


@pytest.mark.usefixtures("texts")
def test_too_few_tokens_are_refused(model: Model) -> None:
    with pytest.raises(InputError, match="seal no page"):
        next(iter(measure(model, ARMS, ["a"], 100)))


@pytest.mark.usefixtures("texts")
def test_the_command_prints_every_arm_and_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    asked = ["arms", "--arm", "fp16", "--arm", "turbo:2/turbo:2", "--text", "story"]
    running_texts = [*asked, "--tokens", "150", "--plot", str(page)]
    monkeypatch.setattr(forward, "passage", lambda name: Given("a"))
    assert command(running_texts) == 0
    out = capsys.readouterr().out
    assert "turbo:2/turbo:2" in out
    assert "fp16" in out
    html = page.read_text()
    assert html.count("<svg") == 1
    assert html.count("<tr>") == 3
    assert command([*asked, "--tokens", "150", "--json"]) == 0
    assert [row["arm"] for row in json.loads(capsys.readouterr().out)] == [
        "turbo:2/turbo:2",
        "fp16",
    ]


def test_the_command_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, message in (
        (["--text", "storey"], "did you mean 'story'"),
        (["--ablation", "windw"], "did you mean 'window'"),
        (["--half", "both"], "--half: 'both'"),
        (["--arm", "turbo:x"], "'turbo:x' is not a codec"),
    ):
        assert command(["arms", *wrong]) == 2
        assert message in capsys.readouterr().err
