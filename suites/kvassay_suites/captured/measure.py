"""Attention over a cache of captured tensors against exact attention over the same ones."""

from __future__ import annotations

from kvassay.captured import CapturedFile, open_captured
from kvassay.errors import TensorsError
from kvassay.presets import preset as make_preset
from kvassay.records import Record
from kvassay.spec import Identity, Spec
from kvassay.suite import Target

from ..quality.fidelity import (
    LayerTensors,
    fidelity_records,
    layer_fidelity,
    layer_records,
    sampled_positions,
)
from ..quality.measured import REAL, Origin, load
from ..quality.real_model import spread_layers
from . import SUITE, shape

#: Odd, so that sampled queries meet every phase of a page filling up.
EVERY = 7


def measure(
    backend: str, variant: str, preset: str, tensors: str, digest: str, tokens: int, layers: int
) -> list[Record]:
    """Fidelity layer by layer over the first so many tokens.

    digest: of the file when the run was planned; TensorsError if it is another file by now.
    layers: at most so many. A file too short to seal a page gives records without a comparison.
    """
    file = open_captured(tensors)
    if file.digest != digest:
        raise TensorsError(f"{tensors}: changed while it was judged")
    origin = Origin(Target(backend, variant), preset, REAL, SUITE, tensors)
    spec = spec_of(file, preset)
    chosen = [file.layers[i] for i in spread_layers(len(file.layers), layers)]
    measured = []
    with load(origin.target).prepare(spec) as cache:
        for number in chosen:
            index = file.layers.index(number)
            layer = file.layer(number, tokens)
            positions = sampled_positions(spec.layer(index), len(layer.k), EVERY)
            data = LayerTensors(layer.q, layer.k, layer.v)
            measured.append(layer_fidelity(cache, index, data, positions))
    detail = {
        "tokens": min(tokens, file.tokens),
        "file": digest,
        "text": file.provenance.text_digest,
        "model": file.provenance.model,
        "model_digest": file.provenance.model_digest,
        "made_by": dict(file.provenance.made_by),
    }
    names = ("attention", "output")
    records = fidelity_records(origin, measured, names, "all layers", layers=chosen, **detail)
    return records + layer_records(origin, chosen, measured)


def spec_of(file: CapturedFile, preset: str) -> Spec:
    """The preset in the shape of the file, with its softmax scale, RoPE and identity."""
    origin = file.provenance
    return make_preset(
        preset,
        **shape(file),
        softmax_scale=origin.softmax_scale,
        rope=origin.rope,
        identity=Identity(
            model=origin.model_digest or origin.model,
            tokenizer=origin.tokenizer_digest,
            template=origin.template_digest,
            tokens=origin.text_digest,
        ),
    )
