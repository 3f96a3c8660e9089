"""Real and tiny transformers to run a KV cache in: reader, tokenizer, forward pass, texts.

Plain numpy. Reading real models needs the packages ``gguf`` and ``tokenizers``, which are
imported when a model is loaded.
"""

from kvassay.model_names import DEFAULT_MODEL, GEMMA
from kvassay.models.attention import (
    Attention,
    CacheAttention,
    CaptureAttention,
    FullAttention,
    KVCache,
)
from kvassay.models.capture import Capture, capture, token_digest
from kvassay.models.config import ModelConfig
from kvassay.models.corpus import PASSAGES, Passage, passage
from kvassay.models.dialogues import Dialogue, Turn
from kvassay.models.gguf_file import GGUFFile, find_default
from kvassay.models.likelihood import (
    hidden_nll,
    log_softmax,
    nll,
    perplexity,
    teacher_forced_nll,
)
from kvassay.models.llama import LayerWeights, Model, Weights
from kvassay.models.loading import load, locate, read_shape
from kvassay.models.norms import norms_digest, norms_of
from kvassay.models.texts import (
    DialogueTokens,
    Text,
    dialogue_tokens,
    dialogues,
    perplexity_text,
    question_tokens,
    render,
    topics_tokens,
)
from kvassay.models.tiny import tiny, tiny_tokens
from kvassay.models.tokenizer import Tokenizer, Tokens

__all__ = [
    "DEFAULT_MODEL",
    "GEMMA",
    "PASSAGES",
    "Attention",
    "CacheAttention",
    "Capture",
    "CaptureAttention",
    "Dialogue",
    "DialogueTokens",
    "FullAttention",
    "GGUFFile",
    "KVCache",
    "LayerWeights",
    "Model",
    "ModelConfig",
    "Passage",
    "Text",
    "Tokenizer",
    "Tokens",
    "Turn",
    "Weights",
    "capture",
    "dialogue_tokens",
    "dialogues",
    "find_default",
    "hidden_nll",
    "load",
    "locate",
    "log_softmax",
    "nll",
    "norms_digest",
    "norms_of",
    "passage",
    "perplexity",
    "perplexity_text",
    "question_tokens",
    "read_shape",
    "render",
    "teacher_forced_nll",
    "tiny",
    "tiny_tokens",
    "token_digest",
    "topics_tokens",
]
