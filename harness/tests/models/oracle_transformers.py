"""Logits of small GGUF files as the package ``transformers`` computes them, beside ours.

Not part of the test set: torch is a large download. Run by `nox -s models`. The weights go through
that package's own reader of GGUF files, so naming, order and RoPE are checked with the arithmetic.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from model_files import Form, write_gguf
from test_model_architectures import FORMS
from transformers import AutoConfig, AutoModelForCausalLM

from kvassay import models


@pytest.mark.parametrize("name", FORMS)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    form: Form = FORMS[name]
    path = write_gguf(tmp_path / "small.gguf", form=form)
    model = models.load(path)
    tokens = np.random.default_rng(5).integers(0, model.config.vocab, 60)
    config = AutoConfig.from_pretrained(tmp_path, gguf_file=path.name)
    if form.architecture == "gemma3":  # which has a default that no GGUF file overrides
        config.query_pre_attn_scalar = form.head_dim
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file=path.name,
        config=config,
        dtype=torch.float32,
        attn_implementation="eager",
    )
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens[None])).logits[0].numpy()
    found = model.forward(tokens, model.full_attention())
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=2e-4)
