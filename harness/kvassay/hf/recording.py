"""Queries, keys and values of a model of transformers, in a file for `kvassay gate --tensors`."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvassay._version import __version__
from kvassay.captured import CapturedFile, Layer, Provenance, open_captured, write_captured
from kvassay.errors import InputError, UnsupportedError
from kvassay.hf.shape import require_attention_functions, rope_of, shape_of, spans_of
from kvassay.models import token_digest

_RECORDING: Final = "kvassay-recording"
#: Computes what is recorded around.
_INNER: Final = "sdpa"


def capture_model(
    model: Any,
    tokens: Sequence[int],
    path: str | os.PathLike[str],
    layers: Sequence[int] | None = None,
    name: str = "",
) -> CapturedFile:
    """Run `model` over token ids and write q, k, v of these layers (default all) as float32.

    The model is left as it was. Raises InputError for no tokens or an unknown layer,
    UnsupportedError for models without full attention, TensorsError where a number is not finite.
    """
    shape = shape_of(model.config)
    require_attention_functions(model)
    if any(spans_of(model.config)):
        raise UnsupportedError(
            f"{model.config.model_type}: sliding layers; a file of captured tensors stands for "
            f"full causal attention"
        )
    chosen = sorted(set(range(shape["layers"]) if layers is None else layers))
    if not len(tokens) or not chosen or not 0 <= chosen[0] <= chosen[-1] < shape["layers"]:
        raise InputError(
            f"{len(tokens)} tokens, layers {chosen} of {shape['layers']}: nothing to run, or an "
            f"unknown layer"
        )
    found: dict[int, Layer] = {}
    scales: set[float] = set()
    with _recording(model, found, scales, frozenset(chosen)), torch.no_grad():
        model(torch.tensor([list(tokens)], device=model.device), use_cache=False)
    if set(found) != set(chosen) or len(scales) != 1:
        raise InputError(
            f"layers {sorted(found)} with softmax scales {sorted(scales)} went through attention, "
            f"{chosen} with one scale wanted: this model does not use transformers' attention "
            f"functions"
        )
    origin = Provenance(
        model=name or model.config.name_or_path or type(model).__name__,
        text_digest=token_digest(tokens),
        layers=shape["layers"],
        softmax_scale=scales.pop(),
        model_digest=_weights_digest(model),
        rope=rope_of(model.config),
        made_by={
            "kvassay": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    )
    write_captured(path, origin, found)
    written = open_captured(path)
    written.check_values()
    return written


@contextmanager
def _recording(
    model: Any, found: dict[int, Layer], scales: set[float], wanted: frozenset[int]
) -> Iterator[None]:
    """Make the model's attention leave q, k and v of the wanted layers in `found`."""
    inner = ALL_ATTENTION_FUNCTIONS[_INNER]

    def record(
        module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any
    ) -> tuple[Any, Any]:
        if module.layer_idx in wanted:
            found[module.layer_idx] = Layer(*(_rows(x) for x in (query, key, value)))
            scaling = options.get("scaling") or query.shape[-1] ** -0.5
            scales.add(float(np.float32(scaling)))
        result: tuple[Any, Any] = inner(module, query, key, value, mask, **options)
        return result

    transformers.AttentionInterface.register(_RECORDING, record)
    AttentionMaskInterface.register(_RECORDING, ALL_MASK_ATTENTION_FUNCTIONS[_INNER])
    before = model.config._attn_implementation
    model.set_attn_implementation(_RECORDING)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _rows(states: Any) -> Any:
    """(1, heads, tokens, head_dim) as float32 (tokens, heads, head_dim)."""
    return states[0].transpose(0, 1).to("cpu", torch.float32).contiguous().numpy()


def _weights_digest(model: Any) -> str:
    """Hex sha256 of names and bytes of all weights, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()
