"""SentencePiece vocabularies and splitting rules, against plain readings of what they say."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import Array, tokens, write_gguf

from kvassay import models
from kvassay.errors import ModelError

SPACE = "\u2581"
JOINED = (
    "th",
    "the",
    f"{SPACE}t",
    f"{SPACE}the",
    "er",
    "re",
    "ere",
    "here",
    "ab",
    "ba",
    "aba",
    "aa",
)
LETTERS = "abcehrt"
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), SPACE, *LETTERS, *JOINED]
KINDS = [2, 3, 3, *[6] * 256, *[1] * (1 + len(LETTERS) + len(JOINED))]
SCORES = [0.0] * (len(PIECES) - len(JOINED)) + [-float(rank) for rank in range(len(JOINED))]
METADATA: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.scores": SCORES,
    "tokenizer.ggml.add_space_prefix": False,
}


def small(folder: Path, **changed: Any) -> models.Tokenizer:
    metadata = {**METADATA, **{f"tokenizer.ggml.{key}": value for key, value in changed.items()}}

    def weights(found: dict[str, Array]) -> None:
        rows = len(metadata["tokenizer.ggml.tokens"])
        found["token_embd.weight"] = np.ones((rows, 32), dtype=np.float32)

    path = write_gguf(
        folder / "pieces.gguf",
        metadata=metadata,
        omit=["tokenizer.ggml.merges"],
        change=weights,
    )
    return models.load(path).tokenizer


def joined(text: str) -> list[str]:
    """SentencePiece by its definition: join the best pair, the leftmost of equals, again."""
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = [(a + b, i) for i, (a, b) in enumerate(itertools.pairwise(parts))]
        known = [(-SCORES[PIECES.index(p)], i, p) for p, i in pairs if p in JOINED]
        if not known:
            return parts
        _, i, piece = min(known)
        parts[i : i + 2] = [piece]


def test_pieces_are_joined_best_first(tmp_path: Path) -> None:
    tokenizer = small(tmp_path)
    random = np.random.default_rng(1)
    for length in range(1, 40):
        text = "".join(random.choice(list(f"{LETTERS} "), length))
        ids = tokenizer.encode(text, bos=False)
        assert [PIECES[i] for i in ids] == joined(text), text
        assert tokenizer.decode(ids) == text


def test_what_has_no_piece_becomes_bytes_and_comes_back(tmp_path: Path) -> None:
    tokenizer = small(tmp_path)
    text = "the größe\n🙂"
    ids = tokenizer.encode(text)
    assert ids[0] == 1  # these vocabularies ask for a BOS unless they say otherwise
    assert f"<0x{'ö'.encode()[0]:02X}>" in [PIECES[i] for i in ids]
    assert tokenizer.decode(ids, special=False) == text


def test_a_text_that_begins_gets_its_space_and_one_that_continues_does_not(tmp_path: Path) -> None:
    tokenizer = small(tmp_path, add_space_prefix=True)
    assert [PIECES[i] for i in tokenizer.encode("the")] == ["<s>", f"{SPACE}the"]
    assert [PIECES[i] for i in tokenizer.encode("the", bos=False)] == ["the"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scores": SCORES[:-1]}, "entries for"),
        ({"scores": ["x"]}, "expected an array of floats"),
        ({"tokens": [p if p != "<0x41>" else "?" for p in PIECES]}, "lacks the piece '<0x41>'"),
        ({"bos_token_id": 10**6}, "beyond the vocabulary"),
    ],
)
def test_a_damaged_vocabulary_is_named(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        small(tmp_path, **changed)


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("gpt-2", "h 2024e", ["h", "Ġ", "2", "0", "2", "4", "e"]),
        ("qwen2", "hell hell", ["hell", "Ġ", "hell"]),
        ("llama-bpe", "hell!", ["hell", "!"]),
    ],
)
def test_splitting_rules_keep_the_text(
    tmp_path: Path, rule: str, text: str, expected: list[str]
) -> None:
    path = write_gguf(tmp_path / "rule.gguf", metadata={"tokenizer.ggml.pre": rule})
    tokenizer = models.load(path).tokenizer
    ids = tokenizer.encode(text)
    assert [tokens()[i] for i in ids] == expected
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("rule", "digits"), [("smollm", 1), ("qwen2", 1), ("llama-bpe", 3), ("gpt-2", 6)]
)
def test_splitting_rules_differ_in_how_many_digits_stay_together(
    tmp_path: Path, rule: str, digits: int
) -> None:
    """With tokens for all runs of ones, the longest token shows where the rule cuts."""
    runs = ["1" * n for n in (2, 3, 4, 6)]
    path = write_gguf(
        tmp_path / "digits.gguf",
        metadata={
            "tokenizer.ggml.pre": rule,
            "tokenizer.ggml.tokens": [*tokens(), *runs],
            "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens()) + len(runs) - 3),
            "tokenizer.ggml.merges": ["1 1", "11 11", "1111 11", "11 1"],
        },
        change=lambda weights: weights.update(
            {"token_embd.weight": np.ones((len(tokens()) + len(runs), 32), dtype=np.float32)}
        ),
    )
    tokenizer = models.load(path).tokenizer
    longest = max(len(tokenizer.decode([i])) for i in tokenizer.encode("111111"))
    assert longest == digits
