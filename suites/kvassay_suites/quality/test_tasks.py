"""The task families: what they hold, and how a pass over one is scored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from kvassay.errors import InputError, KvassayError
from kvassay.judging.rules import evaluate, rulebook
from kvassay.models import (
    Dialogue,
    FullAttention,
    Model,
    dialogue_tokens,
    find_default,
    log_softmax,
    tiny,
)
from kvassay.models.gguf_file import GGUFFile
from kvassay.models.tokenizer import Tokenizer
from kvassay.suite import Request, Target
from kvassay_suites.quality import suite
from kvassay_suites.quality.tasks import FAMILIES, LEAST_ITEMS, SAFETY, SHIP_FAMILIES, measure
from kvassay_suites.quality.tasks.item import Conversation, Family, Item, reading
from kvassay_suites.quality.tasks.scoring import COLUMNS, score, script

#: A change of any word of a family changes what earlier figures mean: it must be seen here.
DIGESTS = {
    "chat": ["497a9cd996cc", "e5c7882dfb93"],
    "retrieval": ["a6cc959c91c9", "d68c0c3b8e73", "92fb43a11e4a"],
    "conflicts": ["19062efbbfb5", "b38d14ddc53f"],
    "turns": ["d1380feb4c4a", "06e52d1b28ce"],
    "summary": ["4e1a88de6de2", "1d0b230ecf08"],
    "code": ["fd1c1e034d43", "2a0d9758068b"],
    "repeated": ["970da7e3db41", "16bb83526b4c"],
    "safety": ["eaf0a79942d8", "2ceb7f629a0a"],
    "limits": ["e7b30ef44476"],
}

SMALL = Conversation(
    reading("The cat sat on the mat and looked at the door for a long time. " * 4),
    (
        Item("Where did the cat sit?", " mat.", "On the", (" hat.", " door.", " mat again.")),
        Item("What did it look at?", "Door", "", ("Sky", "Cup")),
    ),
)


class Bytes:
    """A tokenizer whose tokens are bytes, of a model that is spoken to as the default one is."""

    specials: ClassVar = {"<|im_start|>": 0}

    def encode(self, text: str, special: bool = True, bos: bool = True) -> NDArray[np.int64]:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)


@pytest.fixture(scope="module")
def model() -> Model:
    """A tiny transformer that reads bytes."""
    plain = tiny("gqa")
    return Model(plain.config, plain.weights, Bytes())  # type: ignore[arg-type]


@pytest.fixture
def small(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Family]:
    """SMALL as the only family, and the tiny model in place of any."""
    family = Family("small", "nothing", (SMALL,))
    monkeypatch.setattr(measure, "FAMILIES", {"small": family})
    monkeypatch.setattr(measure, "real_model", lambda name: model)
    measure._full_pass.cache_clear()
    yield family
    measure._full_pass.cache_clear()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_family_has_its_items_and_they_are_the_known_ones(family: Family) -> None:
    assert len(family.items) >= LEAST_ITEMS
    assert [one.digest[:12] for one in family.conversations] == DIGESTS[family.name]
    for item in family.items:
        words = [text.split()[0].strip(".,") for text in (item.reference, *item.rivals)]
        assert len(words) == 4
        assert words.count(words[0]) == 1
        assert item.reference.startswith(" ") == bool(item.lead)


def test_ship_families_and_safety_are_all_there_are() -> None:
    assert set(FAMILIES) == {*SHIP_FAMILIES, SAFETY}


def test_every_fact_asked_for_is_in_the_text() -> None:
    for name in ("retrieval", "limits"):
        for talk in FAMILIES[name].conversations:
            for item in talk.items:
                assert f"{item.lead}{item.reference}".lower() in talk.opening[0].content.lower()
    depths = {item.tag for item in FAMILIES["retrieval"].items}
    assert len(depths) == 30


@pytest.mark.model
def test_items_suit_the_tokenizer_of_the_default_model() -> None:
    tokenizer = Tokenizer(GGUFFile(find_default()))
    plain = tiny("gqa")
    reader = Model(plain.config, plain.weights, tokenizer)
    for family in FAMILIES.values():
        for talk in family.conversations:
            found = script(reader, talk)
            opening = len(dialogue_tokens(reader, Dialogue("", talk.opening)).tokens)
            assert opening >= 4 + 128 + 64, "an answer would lie within the window of turbo"
            for question, item in zip(found.questions, talk.items, strict=True):
                said = tokenizer.decode(found.tokens[question.answer.start : question.answer.stop])
                assert said == f"{item.reference}<|im_end|>"
                assert len(question.choices) == 4
    (whole,) = FAMILIES["limits"].conversations
    assert 8000 <= len(script(reader, whole).tokens) <= 8192


def test_a_pass_is_scored_by_the_reference_alone(model: Model) -> None:
    talk = script(model, SMALL)
    full = model.hidden(talk.tokens, FullAttention())
    noisy = (full + 0.5 * np.sign(full[::-1])).astype(np.float32)
    found = score(model, talk, full, noisy)
    assert tuple(found) == COLUMNS
    text = bytes(talk.tokens.astype(np.uint8)).decode()
    for number, (question, item) in enumerate(zip(talk.questions, SMALL.items, strict=True)):
        answer = f"{item.reference}<|im_end|>"
        assert text[question.answer.start : question.answer.stop] == answer
        log_q = log_softmax(model.logits(noisy))
        expected = -sum(log_q[at - 1, talk.tokens[at]] for at in question.answer)
        assert found["nll"][number] == pytest.approx(expected)
        assert found["tokens"][number] == len(answer)
    assert found["full_nll"] != found["nll"]
    assert min(found["kl"]) > 0


def test_the_choice_is_made_where_answers_begin_to_differ(model: Model) -> None:
    """With bytes as tokens all answers to the first item begin with a space."""
    talk = script(model, SMALL)
    first, second = talk.questions
    assert [chr(token) for token in first.choices] == ["m", "h", "d"]
    assert (first.fork, second.fork) == (first.answer.start + 1, second.answer.start)
    full = model.hidden(talk.tokens, FullAttention())
    found = score(model, talk, full, full)
    assert found["chance"] == [pytest.approx(1 / 3)] * 2
    for number, question in enumerate(talk.questions):
        row = model.logits(full)[question.fork - 1]
        likeliest = max(question.choices, key=lambda token: row[token])
        assert found["right"][number] == (likeliest == question.choices[0])


def test_answers_that_are_alike_are_refused(model: Model) -> None:
    same = Conversation(SMALL.opening, (Item("Which?", "This", rivals=("This",)),))
    with pytest.raises(InputError, match="'Which\\?': its answers are alike"):
        script(model, same)


def test_full_precision_beside_itself_differs_in_nothing(model: Model) -> None:
    talk = script(model, SMALL)
    full = model.hidden(talk.tokens, FullAttention())
    found = score(model, talk, full, full)
    assert found["nll"] == found["full_nll"]
    assert found["kl"] == [0.0, 0.0]
    assert found["choice"] == found["full_choice"]
    assert found["top1"] == [1.0, 1.0]


def arguments(family: Family, preset: str) -> dict[str, Any]:
    return {
        **{"backend": "native", "variant": "scalar", "preset": preset, "model": "tiny"},
        **{"family": family.name, "number": 0, "digest": family.conversations[0].digest},
    }


def test_an_arm_is_measured_with_its_cache_in_the_loop(small: Family) -> None:
    (fp16,) = measure.measure(**arguments(small, "fp16"))
    (kivi,) = measure.measure(**arguments(small, "kivi"))
    assert fp16.detail["text"] == kivi.detail["text"]
    assert fp16.detail["unsealed"] == kivi.detail["unsealed"] == 0
    assert fp16.comparisons == sum(fp16.detail["items"]["tokens"])
    assert fp16.detail["items"]["full_nll"] == kivi.detail["items"]["full_nll"]
    assert 0 < max(fp16.detail["items"]["kl"]) < 1e-4
    assert min(kivi.detail["items"]["kl"]) > 100 * max(fp16.detail["items"]["kl"])
    nll = math.fsum(kivi.detail["items"]["nll"]) / math.fsum(kivi.detail["items"]["full_nll"])
    assert kivi.value == pytest.approx(nll - 1.0)


def test_answers_inside_the_window_are_counted(small: Family) -> None:
    (record,) = measure.measure(**arguments(small, "turbo,window=4096"))
    assert record.detail["unsealed"] == 2


def test_another_version_of_a_conversation_is_refused(small: Family) -> None:
    with pytest.raises(KvassayError, match="install the same kvassay everywhere"):
        measure.measure(**{**arguments(small, "fp16"), "digest": "0" * 64})


def test_families_belong_to_scope_full_and_go_by_conversation() -> None:
    target = Target("native", "scalar")
    asked = Request((target,), ("turbo", "kivi"), depth="quick", scope="full")
    tasks = [t for t in suite.tasks(asked) if t.function.endswith("tasks.measure:measure")]
    assert len(tasks) == 2 * sum(len(family.conversations) for family in FAMILIES.values())
    longest = sorted(tasks, key=lambda task: -task.weight)
    names = [(task.arguments["family"], task.arguments["number"]) for task in longest]
    assert names[0] == names[1] == ("limits", 0)
    assert all(names[i] == names[i + 1] for i in range(0, len(names), 2))
    default = Request((target,), ("turbo",), depth="quick")
    assert not [t for t in suite.tasks(default) if "tasks.measure" in t.function]


@pytest.mark.model
@pytest.mark.long
def test_two_bit_keys_and_values_are_rejected_and_the_product_is_not() -> None:
    """The planted bad arm, `kivi` at 2 bits, on the answers of ordinary chat."""
    records = []
    for preset in ("kivi", "turbo"):
        for number, talk in enumerate(FAMILIES["chat"].conversations):
            which = {"family": "chat", "number": number, "digest": talk.digest}
            arm = {"backend": "native", "variant": "scalar", "preset": preset}
            records += measure.measure(model="smollm2-135m", **arm, **which)  # type: ignore[arg-type]
    concluded = suite.conclude(records)
    for preset, state in (("kivi", "reject"), ("turbo", "pass")):
        mine = [record for record in concluded if record.preset == preset]
        for name in ("quality.task_kl", "quality.chat_nll_rise"):
            assert evaluate(rulebook().rule(name), mine).state == state
