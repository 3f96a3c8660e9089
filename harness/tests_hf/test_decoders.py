"""docs/transformers.md says of every decoder class what it does; three of each kind are tried."""

from __future__ import annotations

import re
import warnings
from typing import Final

import pytest
import torch
from decoders import PAGE, RUNS, classes, verdict

from kvassay.hf import cache

_ROW: Final = re.compile(r"^\| `(\w+)` \| ([\w ]+) \|", re.M)
SAID: Final = dict(_ROW.findall(PAGE.read_text(encoding="utf-8")))
#: Of every kind: attention with another scale, experts, sliding layers, refusals.
TRIED: Final = (
    *("LlamaForCausalLM", "GraniteForCausalLM", "Gemma3ForCausalLM", "MixtralForCausalLM"),
    *("MistralForCausalLM", "GPT2LMHeadModel", "Phi3ForCausalLM", "Qwen3MoeForCausalLM"),
    *("BloomForCausalLM", "GptOssForCausalLM", "Gemma2ForCausalLM", "MambaForCausalLM"),
)


def test_the_page_lists_every_class_and_sixty_run() -> None:
    assert set(SAID) == {name for _, name in classes()}
    assert set(SAID.values()) <= {RUNS, "refused", "not tried"}
    assert sum(state == RUNS for state in SAID.values()) >= 60


@pytest.mark.parametrize("name", TRIED)
def test_a_class_does_what_the_page_says(name: str) -> None:
    kind = {made: kind for kind, made in classes()}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state, why = verdict(kind, name)
    assert state == SAID[name], why


def test_a_wrong_mask_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the test: a cache that drops a token of each pass gives other logits."""

    def drops(mask: object, before: torch.Tensor, n: int, *rest: object) -> torch.Tensor:
        new = torch.ones((before.shape[0], n), dtype=torch.bool)
        new[:, n // 3 : n // 2] = False
        return new

    monkeypatch.setattr(cache, "real_tokens", drops)
    assert verdict("llama", "LlamaForCausalLM")[0] == "WRONG"
