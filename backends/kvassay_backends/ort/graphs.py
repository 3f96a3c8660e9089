"""Models of one node: what the backend runs, and what a graph of one's own contains."""

from __future__ import annotations

from typing import Any, Final

from onnx import TensorProto, helper

from kvassay.spec import Identity, LayerSpec

DOMAIN: Final = "kvassay"
OPSET: Final = 17
#: The oldest model format that has this opset, so that older runtimes read the models too.
IR_VERSION: Final = 8

#: Operator, inputs after the cache, first output.
_OPERATORS: Final = {
    "Append": (("keys", "values"), "cache_out"),
    "Attend": (("query",), "output"),
    "Scores": (("query",), "scores"),
}


def attributes(
    spec: LayerSpec,
    layer: int,
    identity: Identity | None = None,
    variant: str = "",
    threads: int = 1,
) -> dict[str, Any]:
    """The attributes of a node for a layer (docs/onnxruntime.md)."""
    who = identity or Identity()
    hashes = {
        "model": who.model_hash,
        "tokenizer": who.tokenizer_hash,
        "runtime": who.runtime_hash,
    }
    return {
        "kv_heads": spec.kv_heads,
        "query_heads": spec.query_heads,
        "head_dim": spec.head_dim,
        "page_tokens": spec.page_tokens,
        "keys": spec.keys.name,
        "values": spec.values.name,
        "window": spec.window,
        "sinks": spec.sinks,
        "span": spec.span,
        "key_centre": spec.key_centre,
        "value_centre": spec.value_centre,
        "scale": spec.scale,
        "rounds": spec.rounds,
        "seed": signed(spec.seed),
        "softmax_scale": float(spec.softmax_scale),
        "layer": layer,
        **{name: signed(value) for name, value in hashes.items()},
        "variant": variant,
        "threads": threads,
    }


def signed(value: int) -> int:
    """An unsigned 64-bit number as the integer attribute with the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def single(operator: str, given: dict[str, Any]) -> bytes:
    """A model of one node named like its operator, its outputs `ran` and the operator's own."""
    inputs, output = _OPERATORS[operator]
    node = helper.make_node(
        operator, ["cache", *inputs], [output, "ran"], name=operator, domain=DOMAIN, **given
    )
    cache_type = TensorProto.UINT8
    first = cache_type if operator == "Append" else TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        operator,
        [
            helper.make_tensor_value_info("cache", cache_type, None),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs),
        ],
        [
            helper.make_tensor_value_info(output, first, None),
            helper.make_tensor_value_info("ran", TensorProto.INT64, [1]),
        ],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString())
