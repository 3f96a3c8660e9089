"""The tokenizer of a model, built from the metadata of a GGUF file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvassay.errors import InputError
from kvassay.models.gguf_file import GGUFFile
from kvassay.models.vocabularies import CONTROL, SPLITTING, byte_level, sentence_piece

Tokens = npt.NDArray[np.int64]

_BYTES, _PIECES = "gpt2", "llama"  # kinds of vocabularies


class Tokenizer:
    """Text to token ids and back, with the special tokens of the model.

    vocab: number of tokens. bos, eos: their ids, None where the model names none. specials:
    text of each special token and its id. template: the chat template as stored ("" if none).
    hash, template_hash: hex sha256 of everything that decides the ids, and of the template.
    """

    def __init__(self, file: GGUFFile) -> None:
        kind = _kind(file)
        pieces = file.texts("tokenizer.ggml.tokens")
        kinds = file.integers("tokenizer.ggml.token_type")
        merges = file.texts("tokenizer.ggml.merges") if kind == _BYTES else []
        _check_vocabulary(file, pieces, kinds, merges)
        self.vocab = len(pieces)
        self.bos = _special_id(file, "tokenizer.ggml.bos_token_id", self.vocab)
        self.eos = _special_id(file, "tokenizer.ggml.eos_token_id", self.vocab)
        self.add_bos = file.flag("tokenizer.ggml.add_bos_token", kind == _PIECES)
        if self.add_bos and self.bos is None:
            raise file.error("tokenizer.ggml.add_bos_token is set without a bos_token_id")
        self.template = file.text("tokenizer.chat_template", "")
        self.template_hash = hashlib.sha256(self.template.encode()).hexdigest()
        self.specials = {p: i for i, p in enumerate(pieces) if kinds[i] == CONTROL}
        pre = file.text("tokenizer.ggml.pre", "")
        identity: tuple[object, ...]
        if kind == _BYTES:
            self._prefix = False
            self._missing = _missing_bytes(pieces)
            self._bpe = byte_level(pieces, kinds, merges, pre)
            identity = (pre, pieces, kinds, merges, self.bos, self.eos, self.add_bos)
        else:
            self._missing = frozenset[int]()
            self._bpe = sentence_piece(file, pieces, kinds)
            scores = file.numbers("tokenizer.ggml.scores")
            self._prefix = file.flag("tokenizer.ggml.add_space_prefix", True)
            identity = (pieces, kinds, scores, self._prefix, self.bos, self.eos, self.add_bos)
        self.hash = hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def encode(self, text: str, special: bool = True, bos: bool = True) -> Tokens:
        """Token ids of ``text``, int64 (tokens,).

        With ``special`` the texts of special tokens in ``text`` become those tokens, and a BOS
        is put in front if the model asks for one; without it they are ordinary characters.
        bos: false for a text that continues another. Some vocabularies put a space before a text
        that begins; ``decode`` gives it back.
        Raises InputError for a byte the vocabulary has no token for, rather than dropping it.
        """
        try:
            lost = self._missing.intersection(text.encode())
        except UnicodeEncodeError as exc:
            raise InputError(f"text is not valid Unicode at character {exc.start}") from exc
        if lost:
            raise InputError(
                f"text holds the byte 0x{min(lost):02x}, for which the model has no token; "
                "remove the character"
            )
        if self._prefix and bos and text:
            text = f" {text}"
        self._bpe.encode_special_tokens = not special
        ids = list(self._bpe.encode(text, add_special_tokens=False).ids)
        if special and bos and self.add_bos and self.bos is not None:
            ids.insert(0, self.bos)
        return np.asarray(ids, dtype=np.int64)

    def decode(self, tokens: Sequence[int] | Tokens, special: bool = True) -> str:
        """Text of ``tokens``; special tokens are written out with ``special``, else left out."""
        ids = [int(token) for token in tokens]
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab:
                raise InputError(
                    f"token {token} at position {position} is outside the vocabulary "
                    f"of {self.vocab} tokens"
                )
        return self._bpe.decode(ids, skip_special_tokens=not special)


def _kind(file: GGUFFile) -> str:
    """The kind of vocabulary; ModelError for one that would be read wrongly."""
    kind = file.text("tokenizer.ggml.model")
    if kind not in (_BYTES, _PIECES):
        raise file.error(f"tokenizer.ggml.model is {kind!r}; supported: {_BYTES!r}, {_PIECES!r}")
    if kind == _PIECES:
        return kind
    rule = file.text("tokenizer.ggml.pre")
    if rule not in SPLITTING:
        known = ", ".join(repr(name) for name in SPLITTING)
        raise file.error(f"tokenizer.ggml.pre is {rule!r}; supported: {known}")
    if file.flag("tokenizer.ggml.add_space_prefix", False):
        raise file.error("tokenizer.ggml.add_space_prefix is set; supported: not set")
    return kind


def _missing_bytes(pieces: list[str]) -> frozenset[int]:
    """Bytes without a token, in GPT-2's printable alphabet: some vocabularies lack rare ones."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = (byte for byte in range(256) if byte not in printable)
    alphabet = {byte: chr(byte) for byte in printable}
    alphabet |= {byte: chr(256 + n) for n, byte in enumerate(shifted)}
    known = set(pieces)
    return frozenset(byte for byte, piece in alphabet.items() if piece not in known)


def _special_id(file: GGUFFile, key: str, vocab: int) -> int | None:
    if not file.has(key):
        return None
    token = file.integer(key)
    if not 0 <= token < vocab:
        raise file.error(f"metadata key {key!r} is {token}, beyond the vocabulary of {vocab}")
    return token


def _check_vocabulary(
    file: GGUFFile, pieces: list[str], kinds: list[int], merges: list[str]
) -> None:
    known = set(pieces)
    if not pieces or len(known) != len(pieces):
        raise file.error("metadata key 'tokenizer.ggml.tokens' is empty or has repeats")
    if len(kinds) != len(pieces):
        raise file.error(
            f"metadata key 'tokenizer.ggml.token_type' has {len(kinds)} entries "
            f"for {len(pieces)} tokens"
        )
    for number, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if not left or not right or not {left, right, left + right} <= known:
            raise file.error(
                f"metadata key 'tokenizer.ggml.merges' entry {number} is {merge!r:.60}, "
                "not two tokens that join to a third"
            )
