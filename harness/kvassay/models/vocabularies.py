"""The two kinds of vocabularies in GGUF files, as pipelines of the ``tokenizers`` package.

"gpt2": byte-level BPE with merges in their order, after a splitting rule that the file names.
"llama": SentencePiece BPE, where a piece has a score and the best pair is joined first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvassay.models._optional import require
from kvassay.models.gguf_file import GGUFFile

if TYPE_CHECKING:
    import tokenizers

# Token types of the GGUF key tokenizer.ggml.token_type.
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6

_SPACE: Final = "\u2581"  # SentencePiece's stand-in for a space

# Splitting rules by their names in files, as regular expressions; None is that of GPT-2.
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3: Final = _WORDS.format(digits=r"\p{N}{1,3}")
_QWEN2: Final = _WORDS.format(digits=r"\p{N}")
SPLITTING: Final[dict[str, str | None]] = {
    "smollm": None,
    "gpt-2": None,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}
#: Rules under which a word that is a token of its own is not taken apart.
_WHOLE_WORDS: Final = ("llama-bpe", "llama3", "llama-v3")


def byte_level(
    pieces: list[str], kinds: list[int], merges: list[str], rule: str
) -> tokenizers.Tokenizer:
    """Byte-level BPE (Sennrich et al. 2016, with the bytes of GPT-2) under a splitting rule."""
    hf = require("tokenizers")
    split = hf.pre_tokenizers
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    model = hf.models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=rule in _WHOLE_WORDS)
    bpe: tokenizers.Tokenizer = hf.Tokenizer(model)
    pattern = SPLITTING[rule]
    steps = [split.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern is not None:
        steps.insert(0, split.Split(hf.Regex(pattern), behavior="isolated"))
    elif rule == "smollm":
        steps.insert(0, split.Digits(individual_digits=True))
    bpe.pre_tokenizer = split.Sequence(steps)
    bpe.decoder = hf.decoders.ByteLevel()
    _add_whole(bpe, pieces, kinds)
    return bpe


def sentence_piece(file: GGUFFile, pieces: list[str], kinds: list[int]) -> tokenizers.Tokenizer:
    """SentencePiece BPE (Kudo and Richardson 2018, arXiv 1808.06226) with bytes as last resort.

    Raises ModelError where the file has no score for a piece or no token for a byte.
    """
    hf = require("tokenizers")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    for byte in range(256):
        if f"<0x{byte:02X}>" not in vocabulary:
            raise file.error(f"'tokenizer.ggml.tokens' lacks the piece '<0x{byte:02X}>' of a byte")
    scores = file.numbers("tokenizer.ggml.scores")
    if len(scores) != len(pieces):
        raise file.error(
            f"metadata key 'tokenizer.ggml.scores' has {len(scores)} entries for {len(pieces)} "
            "tokens"
        )
    model = hf.models.BPE(
        vocab=vocabulary, merges=_merges(pieces, kinds, scores, vocabulary), byte_fallback=True
    )
    bpe: tokenizers.Tokenizer = hf.Tokenizer(model)
    bpe.normalizer = hf.normalizers.Replace(" ", _SPACE)
    decode = hf.decoders
    bpe.decoder = decode.Sequence(
        [decode.Replace(_SPACE, " "), decode.ByteFallback(), decode.Fuse()]
    )
    _add_whole(bpe, pieces, kinds)
    return bpe


def _merges(
    pieces: list[str], kinds: list[int], scores: list[float], vocabulary: dict[str, int]
) -> list[tuple[str, str]]:
    """Every pair of pieces that joins to a third, the one with the best score first."""
    ranked: list[tuple[float, int, str, str]] = []
    for i, piece in enumerate(pieces):
        if kinds[i] in (UNKNOWN, CONTROL, BYTE):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-scores[i], i, left, right))
    ranked.sort()
    return [(left, right) for _, _, left, right in ranked]


def _add_whole(bpe: tokenizers.Tokenizer, pieces: list[str], kinds: list[int]) -> None:
    """Special tokens, and those that are found in the text before it is split."""
    hf = require("tokenizers")
    special = [p for p, kind in zip(pieces, kinds, strict=True) if kind == CONTROL]
    found = [p for p, kind in zip(pieces, kinds, strict=True) if kind == USER_DEFINED]
    bpe.add_special_tokens([hf.AddedToken(p, special=True, normalized=False) for p in special])
    bpe.add_tokens([hf.AddedToken(p, normalized=False) for p in found])
