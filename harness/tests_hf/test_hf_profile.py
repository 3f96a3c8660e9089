"""A profile is used by the model that it was fitted to, whatever the format of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import PROMPT, tiny

from kvassay.errors import IdentityError
from kvassay.hf import KvassayCache
from kvassay.hf.profile import norms_of
from kvassay.profiles import Profile, write_profile


@pytest.fixture
def model() -> Any:
    """Whose norms tell it from others."""
    made = tiny("llama")
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith("norm.weight"):
                weight.add_(0.1 * torch.randn_like(weight))
    return made


def profile_of(model: Any, path: Path) -> str:
    shape = {"layers": 2, "kv_heads": 2, "query_heads": 4, "head_dim": 64}
    told = {"name": "tiny-llama", "digest": "a" * 64, "norms": norms_of(model), **shape}
    promise = {
        **{"texts": ["essay"], "tokens": 300, "positions": 200, "page_bits": 2.9},
        **{"all_in_bits": 3.9, "kl": 0.01, "kl_low": 0.008, "kl_high": 0.012, "worst": 0.01},
        **{"perplexity_rise": 0.001, "top1": 0.96},
    }
    fields = {
        **{"keys": "turbo:3", "values": "turbo:2.5", "window": 32, "sinks": 4},
        "layer_overrides": {"1": {"keys": "kivi:3"}},
    }
    whole = {
        **{"format": 1, "name": "tiny/3", "target": "3 bits", "model": told, "fields": fields},
        **{"promise": promise, "provenance": {"made_by": "a test"}},
    }
    write_profile(path, Profile.from_dict(whole))
    return str(path)


def test_a_model_runs_with_its_profile(model: Any, tmp_path: Path) -> None:
    cache = KvassayCache(model, profile=profile_of(model, tmp_path / "p.json"), window=64)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT]), cache=cache).logits
    assert torch.isfinite(logits).all()
    spec = cache.kvassay.spec
    assert [one.keys.name for one in spec.layer_specs] == ["turbo:3", "kivi:3"]
    assert spec.window == 64
    assert cache.kvassay.counters.pages_encoded > 0


def test_another_model_is_refused(model: Any, tmp_path: Path) -> None:
    path = profile_of(model, tmp_path / "p.json")
    with torch.no_grad():
        model.model.norm.weight.add_(0.5)
    with pytest.raises(IdentityError, match="tiny-llama"):
        KvassayCache(model, profile=path)
