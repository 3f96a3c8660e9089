"""Building a Model from a GGUF file."""

from __future__ import annotations

import re
from pathlib import Path

from kvassay.errors import ModelError
from kvassay.models.config import ModelConfig
from kvassay.models.gguf_file import GGUFFile, find_default
from kvassay.models.llama import LayerWeights, Model, Weights
from kvassay.models.tokenizer import Tokenizer
from kvassay.suggest import did_you_mean

DEFAULT_MODEL = "smollm2-135m"
_NAMED = {DEFAULT_MODEL: find_default}
_ARCHITECTURE = "llama"

# Keys that change the computation in ways the forward pass does not follow.
_UNSUPPORTED_KEYS = (
    "llama.expert_count",
    "llama.rope.scaling.type",
    "llama.attention.sliding_window",
)


def load(name_or_path: str | Path = DEFAULT_MODEL) -> Model:
    """Load a model by name ("smollm2-135m") or from the path of a GGUF file.

    Weights are dequantized to float32 once: about 540 MB for SmolLM2-135M. Raises ModelError
    for a model that is not installed, an unknown name, a damaged file, or an architecture other
    than llama.
    """
    return _from_file(GGUFFile(_locate(name_or_path)))


def _locate(name_or_path: str | Path) -> Path:
    named = _NAMED.get(str(name_or_path))
    if named is not None:
        return named()
    path = Path(name_or_path)
    if path.is_file():
        return path
    name = str(name_or_path)
    raise ModelError(f"{name!r} is neither a file nor a known model{did_you_mean(name, _NAMED)}")


def _from_file(file: GGUFFile) -> Model:
    config, tokenizer = read_config(file)
    return Model(config, _weights(file, config), tokenizer)


def read_config(file: GGUFFile) -> tuple[ModelConfig, Tokenizer]:
    """Shape and tokenizer of a file that holds a plain model of the architecture, nothing else.

    Raises ModelError for anything that a forward pass would have to know of and does not.
    """
    architecture = file.text("general.architecture")
    if architecture != _ARCHITECTURE:
        raise file.error(
            f"architecture {architecture!r} is not supported; supported: {_ARCHITECTURE!r}"
        )
    for key in _UNSUPPORTED_KEYS:
        if file.has(key):
            raise file.error(f"metadata key {key!r} is set, which is not supported")
    tokenizer = Tokenizer(file)
    config = _config(file, tokenizer)
    _refuse_unknown_tensors(file, config)
    return config, tokenizer


def _config(file: GGUFFile, tokenizer: Tokenizer) -> ModelConfig:
    hidden = file.integer("llama.embedding_length")
    query_heads = file.integer("llama.attention.head_count")
    if query_heads < 1 or hidden % query_heads:
        raise file.error(f"head_count {query_heads} does not divide embedding_length {hidden}")
    head_dim = file.integer("llama.attention.key_length", hidden // query_heads)
    for key in ("llama.rope.dimension_count", "llama.attention.value_length"):
        if file.integer(key, head_dim) != head_dim:
            raise file.error(f"{key} is {file.integer(key)}; supported: the head dim, {head_dim}")
    try:
        return ModelConfig(
            name=file.text("general.name", file.path.stem),
            layers=file.integer("llama.block_count"),
            query_heads=query_heads,
            kv_heads=file.integer("llama.attention.head_count_kv", query_heads),
            head_dim=head_dim,
            hidden=hidden,
            ffn=file.integer("llama.feed_forward_length"),
            vocab=tokenizer.vocab,
            context=file.integer("llama.context_length"),
            rope_base=file.number("llama.rope.freq_base", 10000.0),
            eps=file.number("llama.attention.layer_norm_rms_epsilon"),
            model_hash=file.sha256,
            tokenizer_hash=tokenizer.hash,
            template_hash=tokenizer.template_hash,
        )
    except ModelError as exc:
        raise exc if str(file.path) in str(exc) else file.error(str(exc)) from exc


def _weights(file: GGUFFile, cfg: ModelConfig) -> Weights:
    embedding = file.tensor("token_embd.weight", (cfg.vocab, cfg.hidden))
    tied = "output.weight" not in file.tensor_names()
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(file, cfg, number) for number in range(cfg.layers)),
        norm=file.tensor("output_norm.weight", (cfg.hidden,)),
        output=embedding if tied else file.tensor("output.weight", (cfg.vocab, cfg.hidden)),
    )


def _layer(file: GGUFFile, cfg: ModelConfig, number: int) -> LayerWeights:
    shapes = layer_shapes(cfg)
    tensors = {
        name: file.tensor(f"blk.{number}.{stored}.weight", shape)
        for name, (stored, shape) in shapes.items()
    }
    return LayerWeights(**tensors)


def layer_shapes(cfg: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Field of LayerWeights: name in the file, shape."""
    queries, kv = cfg.query_heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim
    return {
        "attention_norm": ("attn_norm", (cfg.hidden,)),
        "query": ("attn_q", (queries, cfg.hidden)),
        "key": ("attn_k", (kv, cfg.hidden)),
        "value": ("attn_v", (kv, cfg.hidden)),
        "attention_output": ("attn_output", (cfg.hidden, queries)),
        "ffn_norm": ("ffn_norm", (cfg.hidden,)),
        "gate": ("ffn_gate", (cfg.ffn, cfg.hidden)),
        "up": ("ffn_up", (cfg.ffn, cfg.hidden)),
        "down": ("ffn_down", (cfg.hidden, cfg.ffn)),
    }


def _refuse_unknown_tensors(file: GGUFFile, cfg: ModelConfig) -> None:
    """A tensor the forward pass would ignore (a bias, scaled frequencies) changes the model."""
    known = {"token_embd.weight", "output_norm.weight", "output.weight"}
    stored = "|".join(name for name, _ in layer_shapes(cfg).values())
    layer = re.compile(rf"blk\.(\d+)\.({stored})\.weight")
    for name in sorted(file.tensor_names() - known):
        match = layer.fullmatch(name)
        if match is None or int(match[1]) >= cfg.layers:
            raise file.error(f"tensor {name!r} is not part of a plain {_ARCHITECTURE} model")
