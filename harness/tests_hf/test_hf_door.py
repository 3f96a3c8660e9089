"""`--hf-cache`: a cache of transformers keeps the rules, and each fault meets the one for it.

Not among the default tests, since it needs torch: `nox -s hf`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, QuantizedCache

from kvassay.backend.hf_cache import _known
from kvassay.cli import run
from kvassay.errors import KvassayError
from kvassay.judging.gate import Question, judge
from kvassay.registry import load
from kvassay.running.runner import target_tasks
from kvassay.spec import Spec
from kvassay.suite import Target
from kvassay_suites.foreign import SUITE, measure, returned


class Fp8(QuantizedCache):  # type: ignore[misc]
    """Transformers' own 8 bits."""

    def __init__(self, config: Any) -> None:
        super().__init__("fp8", config)


class Halves(DynamicCache):  # type: ignore[misc]
    """Keeps fp16; what it does besides is for those below."""

    def update(self, k: Any, v: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        back = super().update(k.half(), v.half(), layer_idx)
        return tuple(x.float() for x in back)


class WrongHead(Halves):
    """Another head's keys, for single tokens."""

    def update(self, k: Any, v: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        return super().update(k.roll(1, dims=1) if k.shape[2] == 1 else k, v, layer_idx)


class OffByOne(Halves):
    """The tokens that fill no group of 32 come back shifted by one."""

    def update(self, k: Any, v: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        keys, values = super().update(k, v, layer_idx)
        tail = keys.shape[2] % 32
        if tail > 1:
            keys[:, :, -tail:] = keys[:, :, -tail:].roll(1, dims=2)
        return keys, values


class StaleAfterCrop(Halves):
    """Cuts one token too few, and loses the next."""

    cut = False

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove + 1)
        self.cut = True

    def update(self, k: Any, v: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        if self.cut:
            k, v, self.cut = k[:, :, 1:], v[:, :, 1:], False
        return super().update(k, v, layer_idx)


class HiddenPadding(Halves):
    """Views of the same bytes in rows four times as long."""

    def __init__(self) -> None:
        super().__init__()
        self.padding: list[Any] = []

    def update(self, k: Any, v: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        self.padding += [torch.ones(3, *k.shape).half(), torch.ones(3, *v.shape).half()]
        return super().update(k, v, layer_idx)


class FourBits(DynamicCache):  # type: ignore[misc]
    """float32 under another name."""


def judged(name: str, claimed: float, *parts: Any) -> Any:
    backend = f"hf-cache:{__name__}:{name}?claimed-bits={claimed}"
    target = Target(backend, "python")
    (format_,) = load(backend).formats  # type: ignore[attr-defined]
    records = [r for task in target_tasks([target]) for r in task.run()]
    records += [r for part in parts for r in part(backend, "python", format_)]
    return judge(records, Question("default", (target,), (format_,), (SUITE,))).verdicts[0]


def test_the_8_bits_of_transformers_keep_every_rule_that_was_measured() -> None:
    verdict = judged("Fp8", 8.1, returned.placed, returned.held, measure.tiny_transformers)
    assert verdict.named("reject") == ()
    assert "foreign.stored_bits" in verdict.named("pass")
    assert "foreign.misplaced" in verdict.named("pass")


def test_fp16_is_no_fault() -> None:
    assert judged("Halves", 16, returned.placed).named("reject") == ()


@pytest.mark.parametrize(
    ("name", "claimed", "rules"),
    [
        ("WrongHead", 16, {"foreign.misplaced"}),
        ("OffByOne", 16, {"foreign.misplaced"}),
        ("StaleAfterCrop", 16, {"foreign.misplaced"}),
        ("HiddenPadding", 16, {"foreign.stored_bits"}),
        ("FourBits", 4, {"foreign.stored_bits", "foreign.exact_zeros"}),
    ],
)
def test_each_fault_meets_its_rule(name: str, claimed: float, rules: set[str]) -> None:
    verdict = judged(name, claimed, returned.placed, returned.held)
    assert set(verdict.named("reject")) == rules


def test_what_is_no_cache_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["transformers:QuantizedCache"], "needs backend: give --hf-options backend=VALUE"),
        (["transformers:LogitsProcessor"], "has no method update"),
    ):
        backend = load(f"hf-cache:{arguments[0]}")
        with pytest.raises(KvassayError, match=said):
            measure.tiny_transformers(backend.name, "python", arguments[0].partition(":")[2])
    assert run(["gate", "--hf-cache", "transformers:NoSuchCache"]) == 2
    assert "NoSuchCache" in capsys.readouterr().err


@pytest.mark.parametrize(("layers", "kv_heads"), [(1, 1), (2, 2), (3, 1)])
def test_a_class_is_told_layers_and_heads_also_where_they_are_as_many(
    layers: int, kv_heads: int
) -> None:
    shape = Spec(layers=layers, kv_heads=kv_heads, query_heads=2 * kv_heads, head_dim=64)
    told = _known(shape)
    assert (told["num_hidden_layers"], told["num_layers"]) == (layers, layers)
    assert (told["num_key_value_heads"], told["num_kv_heads"]) == (kv_heads, kv_heads)
    assert told["config"].num_hidden_layers == layers
