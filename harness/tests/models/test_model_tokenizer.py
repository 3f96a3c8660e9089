"""The tokenizer, on the small vocabulary of the test files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from model_files import MERGES, SPECIALS, byte_alphabet, tokens, write_gguf

from kvassay import models
from kvassay.errors import InputError, ModelError


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> models.Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "small.gguf"
    return models.load(write_gguf(path)).tokenizer


def pieces(ids: models.Tokens) -> list[str]:
    return [tokens()[i] for i in ids]


def test_merges_apply_in_their_order(tokenizer: models.Tokenizer) -> None:
    assert pieces(tokenizer.encode("hello world")) == ["hell", "o", "Ġw", "o", "r", "l", "d"]


def test_every_digit_is_its_own_token(tokenizer: models.Tokenizer) -> None:
    assert pieces(tokenizer.encode("h2024e")) == ["h", "2", "0", "2", "4", "e"]


@pytest.mark.parametrize(
    "text",
    ["", "hello world", "  two  spaces\n\n\ttab ", "größe – 漢字 🙂 é", "it's 3.14!\x00\x7f"],
)
@pytest.mark.parametrize("special", [True, False])
def test_round_trip(tokenizer: models.Tokenizer, text: str, special: bool) -> None:
    ids = tokenizer.encode(text, special)
    assert ids.dtype == np.int64
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_recognised_written_out_and_left_out(
    tokenizer: models.Tokenizer,
) -> None:
    text = "<|im_start|>user\nhe<|im_end|>\n"
    ids = tokenizer.encode(text)
    assert (ids[0], ids[-2]) == (tokenizer.bos, tokenizer.eos) == (1, 2)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, special=False) == "user\nhe\n"
    assert tokenizer.specials == {piece: i for i, piece in enumerate(SPECIALS)}


def test_without_special_their_text_is_ordinary(tokenizer: models.Tokenizer) -> None:
    ids = tokenizer.encode("<|im_end|>", special=False)
    assert not {0, 1, 2} & set(ids.tolist())
    assert tokenizer.decode(ids, special=False) == "<|im_end|>"
    assert tokenizer.encode("<|im_end|>").tolist() == [2]


def test_bos_is_added_if_the_model_asks_for_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "bos.gguf", metadata={"tokenizer.ggml.add_bos_token": True})
    tokenizer = models.load(path).tokenizer
    assert tokenizer.encode("he").tolist() == [1, tokens().index("he")]
    assert tokenizer.encode("he", special=False).tolist() == [tokens().index("he")]


def test_bos_without_an_id_is_refused(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "bos.gguf",
        metadata={"tokenizer.ggml.add_bos_token": True},
        omit=["tokenizer.ggml.bos_token_id"],
    )
    with pytest.raises(ModelError, match="without a bos_token_id"):
        models.load(path)


def test_a_byte_without_a_token_is_refused_not_dropped(tmp_path: Path) -> None:
    lacking = [*SPECIALS, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    lacking[lacking.index(byte_alphabet()[4])] = "placeholder"
    path = write_gguf(tmp_path / "lacking.gguf", metadata={"tokenizer.ggml.tokens": lacking})
    tokenizer = models.load(path).tokenizer
    assert tokenizer.decode(tokenizer.encode("he\x05")) == "he\x05"
    with pytest.raises(InputError, match="0x04"):
        tokenizer.encode("he\x04")


def test_bad_input_is_refused(tokenizer: models.Tokenizer) -> None:
    with pytest.raises(InputError, match="token 263 at position 1"):
        tokenizer.decode([5, 263])
    with pytest.raises(InputError, match="character 2"):
        tokenizer.encode("he\ud800")
