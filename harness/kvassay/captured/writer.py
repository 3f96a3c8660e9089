"""Writing captured tensors, whole or not at all."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np

from kvassay._version import __version__
from kvassay.captured.provenance import KEY, Provenance
from kvassay.captured.reader import Layer
from kvassay.errors import InputError
from kvassay.models import ModelConfig
from kvassay.writing import write_whole


def provenance_of(config: ModelConfig, text_digest: str) -> Provenance:
    """The identity record of a run of one of `kvassay.models` over the tokens of that digest."""
    return Provenance(
        model=config.name,
        text_digest=text_digest,
        layers=config.layers,
        softmax_scale=float(np.float32(config.softmax_scale or config.head_dim**-0.5)),
        model_digest=config.model_hash,
        tokenizer_digest=config.tokenizer_hash,
        template_digest=config.template_hash,
        rope=config.rope,
        made_by={
            "kvassay": __version__,
            "numpy": version("numpy"),
            "python": platform.python_version(),
        },
    )


def write_captured(
    path: str | os.PathLike[str], provenance: Provenance, layers: Mapping[int, Layer]
) -> None:
    """Write layers by number, float32 or float16, to a safetensors file.

    Raises InputError for other dtypes and for no layer, WriteError where the file cannot be
    written. Shapes and values are checked by who reads the file.
    """
    from safetensors.numpy import save

    if not layers:
        raise InputError("captured tensors: no layer to write")
    tensors = {
        f"layers.{number}.{part}": np.ascontiguousarray(getattr(layer, part))
        for number, layer in sorted(layers.items())
        for part in "qkv"
    }
    for name, array in tensors.items():
        if array.dtype not in (np.float32, np.float16):
            raise InputError(f"captured tensors: {name} is {array.dtype}, not float32 or float16")
    data = save(tensors, metadata={KEY: provenance.to_json()})
    write_whole("captured tensors", path, [data])
