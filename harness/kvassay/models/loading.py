"""Building a Model from a GGUF file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from kvassay.errors import ModelError
from kvassay.model_names import DEFAULT_MODEL, GEMMA
from kvassay.models.architecture import ARCHITECTURES
from kvassay.models.attention import Floats
from kvassay.models.config import ModelConfig
from kvassay.models.gemma import find_gemma
from kvassay.models.gguf_file import GGUFFile, find_default
from kvassay.models.llama import LayerWeights, Model, Weights
from kvassay.models.tokenizer import Tokenizer
from kvassay.suggest import did_you_mean

_NAMED = {DEFAULT_MODEL: find_default, GEMMA: find_gemma}

#: Every sixth layer of a Gemma 3 is global; llama.cpp has it as a constant too.
_GEMMA_PATTERN: Final = 6
#: The one Gemma 3 whose softmax scale is not that of its head dim has so many layers (27B).
_GEMMA_SCALED: Final = 62


def load(name_or_path: str | Path = DEFAULT_MODEL) -> Model:
    """Load a model by name ("smollm2-135m", "gemma3-270m") or from the path of a GGUF file.

    Weights are dequantized to float32 once: about 540 MB for SmolLM2-135M. Raises ModelError
    for a model that is not installed, an unknown name, a damaged file, or an architecture other
    than those of ``kvassay.models.architecture``.
    """
    return _from_file(GGUFFile(locate(name_or_path)))


def locate(name_or_path: str | Path) -> Path:
    """The file of a model by name or path; ModelError where there is none."""
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


def read_shape(file: GGUFFile) -> ModelConfig:
    """Shape of a model, from the metadata alone and without its tokenizer; see read_config."""
    return _config(file, len(file.texts("tokenizer.ggml.tokens")), "", "")


def read_config(file: GGUFFile) -> tuple[ModelConfig, Tokenizer]:
    """Shape and tokenizer of a file that holds a model of a supported architecture, nothing else.

    Raises ModelError for anything that a forward pass would have to know of and does not.
    """
    _architecture(file)  # before the tokenizer, which another architecture may have of its own kind
    tokenizer = Tokenizer(file)
    config = _config(file, tokenizer.vocab, tokenizer.hash, tokenizer.template_hash)
    _refuse_unknown_tensors(file, config)
    return config, tokenizer


def _architecture(file: GGUFFile) -> str:
    name = file.text("general.architecture")
    if name not in ARCHITECTURES:
        known = ", ".join(repr(known) for known in ARCHITECTURES)
        raise file.error(f"architecture {name!r} is not supported; supported: {known}")
    return name


def _refuse_unsupported(file: GGUFFile, name: str) -> None:
    """Keys that change the computation in ways the forward pass does not follow."""
    refused = ["expert_count", "attn_logit_softcapping", "final_logit_softcapping"]
    if not ARCHITECTURES[name].sliding:
        refused.append("attention.sliding_window")
    for key in refused:
        if file.has(f"{name}.{key}"):
            raise file.error(f"metadata key {f'{name}.{key}'!r} is set, which is not supported")


def _config(file: GGUFFile, vocab: int, tokenizer_hash: str, template_hash: str) -> ModelConfig:
    name = _architecture(file)
    _refuse_unsupported(file, name)
    hidden = file.integer(f"{name}.embedding_length")
    query_heads = file.integer(f"{name}.attention.head_count")
    key = f"{name}.attention.key_length"
    if query_heads < 1 or (not file.has(key) and hidden % query_heads):
        raise file.error(f"head_count {query_heads} does not divide embedding_length {hidden}")
    head_dim = file.integer(key, hidden // query_heads)
    for key in (f"{name}.rope.dimension_count", f"{name}.attention.value_length"):
        if file.integer(key, head_dim) != head_dim:
            raise file.error(f"{key} is {file.integer(key)}; supported: the head dim, {head_dim}")
    layers = file.integer(f"{name}.block_count")
    try:
        return ModelConfig(
            name=file.text("general.name", file.path.stem),
            layers=layers,
            query_heads=query_heads,
            kv_heads=file.integer(f"{name}.attention.head_count_kv", query_heads),
            head_dim=head_dim,
            hidden=hidden,
            ffn=file.integer(f"{name}.feed_forward_length"),
            vocab=vocab,
            context=file.integer(f"{name}.context_length"),
            rope_base=file.number(f"{name}.rope.freq_base", 10000.0),
            rope_divisor=_rope_divisor(file, name),
            eps=file.number(f"{name}.attention.layer_norm_rms_epsilon"),
            model_hash=file.sha256,
            tokenizer_hash=tokenizer_hash,
            template_hash=template_hash,
            architecture=name,
            **(_sliding(file, name, layers, hidden / query_heads) if name == "gemma3" else {}),
        )
    except ModelError as exc:
        raise exc if str(file.path) in str(exc) else file.error(str(exc)) from exc


def _rope_divisor(file: GGUFFile, name: str) -> float:
    key = f"{name}.rope.scaling.type"
    kind = file.text(key, "none")
    if kind not in ("none", "linear"):
        raise file.error(f"{key} is {kind!r}, which is not supported; supported: none, linear")
    return file.number(f"{name}.rope.scaling.factor") if kind == "linear" else 1.0


def _sliding(file: GGUFFile, name: str, layers: int, width: float) -> dict[str, Any]:
    """What the sliding layers of a Gemma 3 have of their own.

    width: of the residual stream over the query heads.
    """
    return {
        "span": file.integer(f"{name}.attention.sliding_window"),
        "global_every": _GEMMA_PATTERN,
        "local_rope_base": file.number(f"{name}.rope.freq_base_swa", 10000.0),
        "softmax_scale": float(width**-0.5) if layers == _GEMMA_SCALED else None,
    }


def _weights(file: GGUFFile, cfg: ModelConfig) -> Weights:
    embedding = file.tensor("token_embd.weight", (cfg.vocab, cfg.hidden))
    names = file.tensor_names()
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(file, cfg, number) for number in range(cfg.layers)),
        norm=file.tensor("output_norm.weight", (cfg.hidden,)),
        output=(
            file.tensor("output.weight", (cfg.vocab, cfg.hidden))
            if "output.weight" in names
            else embedding
        ),
        rope_factors=_rope_factors(file, cfg) if ROPE_FACTORS in names else None,
    )


#: Divisors of the RoPE frequencies, which Llama 3.1 and later files have.
ROPE_FACTORS: Final = "rope_freqs.weight"


def _rope_factors(file: GGUFFile, cfg: ModelConfig) -> Floats:
    factors = file.tensor(ROPE_FACTORS, (cfg.head_dim // 2,))
    if not (factors > 0).all():
        raise file.error(f"tensor {ROPE_FACTORS!r} holds divisors that are not positive")
    return factors


def _layer(file: GGUFFile, cfg: ModelConfig, number: int) -> LayerWeights:
    shapes = {**layer_shapes(cfg), **layer_extras(cfg)}
    tensors = {
        name: file.tensor(f"blk.{number}.{_suffixed(stored)}", shape)
        for name, (stored, shape) in shapes.items()
    }
    return LayerWeights(**tensors)


def layer_shapes(cfg: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Field of LayerWeights: name in the file, shape; what all architectures have."""
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


def layer_extras(cfg: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The same for what this architecture has besides; biases by their whole name."""
    extras: dict[str, tuple[str, tuple[int, ...]]] = {}
    if cfg.family.biases:
        extras |= {
            "query_bias": ("attn_q.bias", (cfg.query_heads * cfg.head_dim,)),
            "key_bias": ("attn_k.bias", (cfg.kv_heads * cfg.head_dim,)),
            "value_bias": ("attn_v.bias", (cfg.kv_heads * cfg.head_dim,)),
        }
    if cfg.family.head_norms:
        extras |= {
            "query_norm": ("attn_q_norm", (cfg.head_dim,)),
            "key_norm": ("attn_k_norm", (cfg.head_dim,)),
        }
    if cfg.family.sandwich:
        extras |= {
            "attention_after": ("post_attention_norm", (cfg.hidden,)),
            "ffn_after": ("post_ffw_norm", (cfg.hidden,)),
        }
    return extras


def _suffixed(stored: str) -> str:
    return stored if "." in stored else f"{stored}.weight"


def _refuse_unknown_tensors(file: GGUFFile, cfg: ModelConfig) -> None:
    """A tensor the forward pass would ignore (a bias of another matrix) changes the model."""
    known = {"token_embd.weight", "output_norm.weight", "output.weight", ROPE_FACTORS}
    shapes = {**layer_shapes(cfg), **layer_extras(cfg)}.values()
    stored = "|".join(re.escape(_suffixed(name)) for name, _ in shapes)
    layer = re.compile(rf"blk\.(\d+)\.({stored})")
    for name in sorted(file.tensor_names() - known):
        match = layer.fullmatch(name)
        if match is None or int(match[1]) >= cfg.layers:
            raise file.error(f"tensor {name!r} is not part of a plain {cfg.architecture} model")
