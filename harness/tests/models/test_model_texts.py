"""Fixed texts and dialogues, tokenized with the small vocabulary of the test files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from model_files import tokens, write_gguf

from kvassay import models
from kvassay.errors import InputError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> models.Model:
    return models.load(write_gguf(tmp_path_factory.mktemp("texts") / "small.gguf"))


def test_the_perplexity_text_is_fixed_prose_with_its_hash() -> None:
    text, sha256 = models.perplexity_text()
    assert len(text) == 6000
    assert sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert text.startswith("Sequence Types")


def test_topics_tokens_start_at_the_offset(model: models.Model) -> None:
    tokens = models.topics_tokens(model, 500, offset=1000)
    assert tokens.shape == (500,)
    text = model.tokenizer.decode(models.topics_tokens(model, 3000))
    assert text[1000:].startswith(model.tokenizer.decode(tokens[:300]))


@pytest.mark.parametrize(
    ("n", "offset", "message"),
    [
        (0, 0, "n must be positive"),
        (5, -1, "offset not negative"),
        (1000, 10**7, "hold 0 tokens from character 10000000 on, 1000 are wanted"),
    ],
)
def test_topics_tokens_refuses_what_is_not_there(
    model: models.Model, n: int, offset: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        models.topics_tokens(model, n, offset)


def test_dialogues_alternate_and_end_with_the_assistant() -> None:
    chats = models.dialogues()
    assert len({chat.subject for chat in chats}) == 8
    for chat in chats:
        roles = [turn.role for turn in chat.turns]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert len(roles) in (2, 4)
        assert all(turn.content == turn.content.strip() for turn in chat.turns)


def test_rendering_is_the_models_chat_form() -> None:
    chat = models.Dialogue("s", (models.Turn("user", "Hi"), models.Turn("assistant", "Yes.")))
    assert models.render(chat, system="Be kind.") == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n"
    )


def test_a_bos_stands_once_before_the_dialogue(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "bos.gguf", metadata={"tokenizer.ggml.add_bos_token": True})
    model, chat = models.load(path), models.dialogues()[0]
    tokens, _ = models.dialogue_tokens(model, chat)
    np.testing.assert_array_equal(tokens, model.tokenizer.encode(models.render(chat)))
    assert tokens[:2].tolist() == [1, 1]  # the BOS, then the first turn's own start mark


@pytest.mark.parametrize("chat", models.dialogues(), ids=lambda chat: chat.subject)
def test_the_mask_marks_what_the_assistant_says(model: models.Model, chat: models.Dialogue) -> None:
    tokens, answer = models.dialogue_tokens(model, chat)
    np.testing.assert_array_equal(tokens, model.tokenizer.encode(models.render(chat)))
    said = [turn.content + "<|im_end|>" for turn in chat.turns if turn.role == "assistant"]
    assert model.tokenizer.decode(tokens[answer]) == "".join(said)


def with_mark(folder: Path, mark: str) -> models.Model:
    specials = ["<|endoftext|>", mark, "<|im_end|>" if mark != "<unused>" else "<end>"]
    names = [*specials, *tokens()[3:]]
    path = write_gguf(folder / "marked.gguf", metadata={"tokenizer.ggml.tokens": names})
    return models.load(path)


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("<|im_start|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        ("<start_of_turn>", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"),
        (
            "<|start_header_id|>",
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("<unused>", "User: Hi\nAssistant: "),
    ],
)
def test_a_question_is_in_the_markup_of_the_model(tmp_path: Path, mark: str, expected: str) -> None:
    model = with_mark(tmp_path, mark)
    assert model.tokenizer.decode(models.question_tokens(model, "Hi")) == expected


def test_without_system_messages_their_text_leads_the_first_question(tmp_path: Path) -> None:
    model = with_mark(tmp_path, "<start_of_turn>")
    chat = models.Dialogue("s", (models.Turn("user", "Hi"), models.Turn("assistant", "Yes.")))
    ids, answer = models.dialogue_tokens(model, chat, system="Be kind.")
    assert model.tokenizer.decode(ids) == (
        "<start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n"
        "<start_of_turn>model\nYes.<end_of_turn>\n"
    )
    assert model.tokenizer.decode(ids[answer]) == "Yes.<end_of_turn>"
