"""The operator Linear: its bits, its values, its refusals, and a table whose rows are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from kvassay.models.onnx.linear import Blocks, Stored, unpack
from kvassay.models.onnx.nodes import Builder
from kvassay.protocol import FloatArray
from kvassay_backends.native.build_info import LIBRARY_DIR
from kvassay_backends.ort import backend as provider
from kvassay_backends.ort.graphs import DOMAIN
from kvassay_backends.ort.linear import KvassayLinear, grouped
from kvassay_backends.ort.sessions import options

KINDS = ("Q4_1", "Q8_0")
COLUMNS = 96


def library_options() -> Any:
    states = provider.variants()
    backend: Any = provider.load(next(name for name, state in states.items() if state.runs))
    assert backend.library_path.parent == LIBRARY_DIR
    return options(backend.library_path)


def stored(kind: str, rows: int = 24) -> Stored:
    """Random blocks with finite scales."""
    rng = np.random.default_rng(7)
    head = 2 if kind == "Q8_0" else 4
    size = {"Q8_0": 34, "Q4_1": 20}[kind]
    blocks = rng.integers(0, 256, (rows, COLUMNS // 32, size), np.uint8)
    scales = rng.uniform(-0.2, 0.2, (rows, COLUMNS // 32, head // 2)).astype("<f2")
    blocks[..., :head] = scales.view(np.uint8)
    return Stored(kind, blocks.reshape(rows, -1))


def dense(blocks: Blocks) -> np.ndarray[Any, np.dtype[np.float64]]:
    zero = 1 << blocks.bits - 1
    values = blocks.scale[..., None].astype(np.float64) * (blocks.codes.astype(np.float64) - zero)
    if blocks.rest is not None:
        values += blocks.rest[..., None]
    return values.reshape(len(values), -1)


def session(matrix: Any, **given: Any) -> Any:
    """One node `product` over an initializer."""
    graph = Builder()
    graph.input("x", TensorProto.FLOAT, None)
    graph.constant("w", matrix)
    graph.output(
        graph.add("Linear", ["x", "w"], "y", 1, DOMAIN, **given)[0], TensorProto.FLOAT, None
    )
    return run_on(graph)


def run_on(graph: Builder) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph.graph("g"), opset_imports=opsets, ir_version=8)
    make = onnxruntime.InferenceSession
    return make(model.SerializeToString(), library_options(), providers=["CPUExecutionProvider"])


def inputs(*shape: int) -> FloatArray:
    return np.random.default_rng(3).standard_normal((*shape, COLUMNS), np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1,), (1, 5), (9,), (2, 3)])
def test_products_are_those_of_the_weights_and_the_rounded_inputs(
    kind: str, shape: tuple[int, ...]
) -> None:
    matrix, x = stored(kind), inputs(*shape)
    found = session(grouped(matrix), type=kind.lower()).run(None, {"x": x})[0]
    blocks = x.reshape(*shape, -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    rounded = (np.rint(blocks / scale) * scale).reshape(x.shape)
    expected = rounded.astype(np.float64) @ dense(unpack(matrix)).T
    assert found.shape == (*shape, 24)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_all_variants_and_threads_give_the_same_bits(kind: str, threads: int) -> None:
    matrix, x = grouped(stored(kind, 200)), inputs(7)
    plain = session(matrix, type=kind.lower(), variant="scalar").run(None, {"x": x})[0]
    best = session(matrix, type=kind.lower(), threads=threads).run(None, {"x": x})[0]
    assert plain.tobytes() == best.tobytes()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "attribute type is missing: q4_1 or q8_0"),
        ({"type": "q5_0"}, "q5_0 is not among its values: q4_1, q8_0"),
        ({"type": 4}, "attribute type must be a string"),
        ({"type": "q8_0", "threads": 0}, "attribute threads is outside"),
        ({"type": "q8_0", "variant": "avx9"}, "avx9 is no variant of Linear"),
    ],
)
def test_attributes_are_refused_when_the_session_is_made(given: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=f"node 'y/Linear'.*{says}"):
        session(grouped(stored("Q8_0")), **given)


@pytest.mark.parametrize(
    ("matrix", "x", "says"),
    [
        (np.zeros((3, 100), np.uint8), inputs(1), "weights must be .* 272 bytes a block"),
        (np.zeros(272, np.uint8), inputs(1), "weights must be"),
        (np.zeros((3, 272), np.uint8), inputs(1), "rows of 96, the weights have 32 columns"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(matrix: Any, x: FloatArray, says: str) -> None:
    with pytest.raises(Exception, match=says):
        session(matrix, type="q8_0").run(None, {"x": x})


def test_no_inputs_give_no_outputs() -> None:
    found = session(grouped(stored("Q8_0")), type="q8_0").run(None, {"x": inputs(0)})[0]
    assert found.shape == (0, 24)


def test_rows_are_looked_up_in_the_matrix_that_is_multiplied_by() -> None:
    matrix, graph = stored("Q8_0"), Builder()
    tokens = graph.input("tokens", TensorProto.INT64, ["n"])
    graph.output(KvassayLinear().look_up(graph, tokens, matrix, "t"), TensorProto.FLOAT, None)
    asked = np.array([3, 23, 0, 8, 8], np.int64)
    found = run_on(graph).run(None, {"tokens": asked})[0]
    expected = dense(unpack(matrix))[asked].astype(np.float32)
    assert found.shape == (1, 5, COLUMNS)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_rows_that_are_no_multiple_of_eight_are_left_to_onnxruntime() -> None:
    assert KvassayLinear().accepts(stored("Q4_1", 16))
    assert not KvassayLinear().accepts(stored("Q4_1", 12))
