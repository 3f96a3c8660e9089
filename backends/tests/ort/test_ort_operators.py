"""The operators as a graph of someone's own uses them: in place, several sequences, refusals."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import kvassay_backends.ort
from kvassay.errors import UnavailableError
from kvassay.protocol import FloatArray
from kvassay.spec import Identity, Spec
from kvassay_backends.ort.blocks import aligned
from kvassay_backends.ort.graphs import DOMAIN, attributes
from kvassay_backends.ort.provider import OrtBackendProvider
from kvassay_backends.ort.sessions import options
from kvassay_backends.reference import backend as reference
from kvassay_suites.memory.process import Probe

SHAPE: dict[str, Any] = {
    "layers": 1,
    "kv_heads": 2,
    "query_heads": 4,
    "head_dim": 64,
    "page_tokens": 16,
}
SPEC = Spec(
    **SHAPE,
    keys="turbo:3.5",
    values="turbo:3",
    window=16,
    sinks=4,
    key_centre="page",
    value_centre="frozen",
    identity=Identity(model="a model", tokenizer="a tokenizer"),
)
BYTES = 1 << 17


@pytest.fixture(scope="module")
def session_options() -> Any:
    provider = OrtBackendProvider("ort")
    variant = next(name for name, state in provider.variants().items() if state.runs)
    backend: Any = provider.load(variant)
    return options(backend._native.library.path)


def session(session_options: Any, spec: Spec = SPEC, **changes: Any) -> Any:
    """Append followed by Attend, as a layer of a decoder has them."""
    given = {**attributes(spec.layer_specs[0], 0, spec.identity), **changes}
    given = {name: value for name, value in given.items() if value is not None}
    nodes = [
        helper.make_node(
            "Append",
            ["cache", "keys", "values"],
            ["cache_out"],
            "layer_0/append",
            domain=DOMAIN,
            **given,
        ),
        helper.make_node(
            "Attend", ["cache_out", "query"], ["output"], "layer_0/attend", domain=DOMAIN, **given
        ),
    ]
    names = ("cache", "keys", "values", "query")
    kinds = (TensorProto.UINT8, *[TensorProto.FLOAT] * 3)
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=True)],
        [
            helper.make_tensor_value_info("cache_out", TensorProto.UINT8, None),
            helper.make_tensor_value_info("output", TensorProto.FLOAT, None),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    make = onnxruntime.InferenceSession
    return make(model, session_options, providers=["CPUExecutionProvider"])


def step(layer: Any, block: Any, keys: FloatArray, values: FloatArray, query: FloatArray) -> Any:
    """One run with the cache bound to itself."""
    binding = layer.io_binding()
    cache = onnxruntime.OrtValue.ortvalue_from_numpy(block)
    binding.bind_ortvalue_input("cache", cache)
    binding.bind_ortvalue_output("cache_out", cache)
    for name, rows in (("keys", keys), ("values", values), ("query", query)):
        binding.bind_cpu_input(name, rows)
    binding.bind_output("output")
    layer.run_with_iobinding(binding)
    held, output = binding.get_outputs()
    assert held.data_ptr() == block.ctypes.data
    return output.numpy()


def rows(seed: int, *shape: int) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_a_decoders_layer_gives_the_references_bits_from_an_empty_cache_on(
    session_options: Any,
) -> None:
    layer, block = session(session_options), aligned(BYTES)
    with reference.load("scalar").prepare(SPEC) as cache:
        for turn, tokens in enumerate((1, 5, 60, 1, 1)):
            keys, values = rows(turn, tokens, 2, 64), rows(turn + 50, tokens, 2, 64)
            query = rows(turn + 90, tokens, 4, 64)
            cache.append(0, keys, values)
            output = step(layer, block, keys, values, query)
            np.testing.assert_array_equal(output, cache.attend(0, query))


def test_several_sequences_are_as_many_caches(session_options: Any) -> None:
    layer = session(session_options)
    blocks = aligned(3 * BYTES).reshape(3, BYTES)
    keys, values, query = rows(1, 3, 70, 2, 64), rows(2, 3, 70, 2, 64), rows(3, 3, 2, 4, 64)
    output = step(layer, blocks, keys, values, query)
    for sequence in range(3):
        with reference.load("scalar").prepare(SPEC) as cache:
            cache.append(0, keys[sequence], values[sequence])
            np.testing.assert_array_equal(output[sequence], cache.attend(0, query[sequence]))


def test_what_a_run_returns_does_not_depend_on_spare_room(session_options: Any) -> None:
    layer = session(session_options)
    arrays = (rows(1, 70, 2, 64), rows(2, 70, 2, 64), rows(3, 1, 4, 64))
    small, large = aligned(BYTES), aligned(64 * BYTES)
    np.testing.assert_array_equal(step(layer, small, *arrays), step(layer, large, *arrays))
    assert not large[BYTES:].any()  # nothing was written, or copied, beyond what is used


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a call is what Linux tells")
@pytest.mark.parametrize("in_place", [1, 0])
def test_a_step_makes_no_copy_of_the_cache(session_options: Any, in_place: int) -> None:
    """A tensor of 256 MiB that holds a token; a session that copies shows what is looked for."""
    layer, huge = session(session_options, in_place=in_place), aligned(1 << 28)
    arrays = (rows(1, 1, 2, 64), rows(2, 1, 2, 64), rows(3, 1, 4, 64))
    feeds = dict(zip(("cache", "keys", "values", "query"), (huge, *arrays), strict=True))
    copying = partial(layer.run, None, feeds)
    work = partial(step, layer, huge, *arrays) if in_place else copying
    rise = Probe().peak_of(work).resident_rise
    assert rise is not None
    assert (rise < 8 << 20) is bool(in_place)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"keys": "turbo:9"}, "attribute keys: turbo:9 is not among its values"),
        ({"values": 3}, "attribute values must be a string"),
        ({"window": "wide"}, "attribute window must be an integer"),
        ({"window": -1}, "attribute window is outside"),
        ({"head_dim": None}, "attribute head_dim is missing"),
        ({"head_dim": 50}, "head_dim 50 is not a multiple of 16"),
        ({"query_heads": 3}, "query_heads 3 is not a positive multiple"),
        ({"softmax_scale": "big"}, "attribute softmax_scale must be a float"),
        ({"variant": "avx9"}, "no variant named avx9"),
        ({"threads": 1000}, "attribute threads is outside"),
    ],
)
def test_attributes_are_refused_when_the_session_is_made(
    session_options: Any, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match=f"node 'layer_0/append'.*{says}"):
        session(session_options, **changes)


@pytest.mark.parametrize(
    ("keys", "query", "says"),
    [
        ((5, 3, 64), (1, 4, 64), "input keys has 3 heads of 64, the spec has 2 of 64"),
        ((5, 2, 32), (1, 4, 64), "input keys has 2 heads of 32"),
        ((1, 5, 2, 64), (1, 4, 64), r"input keys must be \[tokens, heads, head_dim\]"),
        ((4, 2, 64), (1, 4, 64), "input values has another number of tokens than keys"),
        ((5, 2, 64), (1, 2, 64), "input query has 2 heads of 64, the spec has 4 of 64"),
        ((5, 2, 64), (9, 4, 64), "9 queries over 5 tokens"),
    ],
)
def test_wrong_shapes_name_the_node_and_the_input(
    session_options: Any, keys: tuple[int, ...], query: tuple[int, ...], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        step(
            session(session_options),
            aligned(BYTES),
            rows(1, *keys),
            rows(2, 5, 2, 64),
            rows(3, *query),
        )


def test_another_type_of_cache_or_rows_is_refused(session_options: Any) -> None:
    """By ONNX Runtime, which knows the operators' types, before a node runs."""
    layer = session(session_options)
    arrays = (rows(1, 5, 2, 64), rows(2, 5, 2, 64), rows(3, 1, 4, 64))
    with pytest.raises(Exception, match=r"int8.*uint8"):
        step(layer, aligned(BYTES).view(np.int8), *arrays)
    with pytest.raises(Exception, match=r"double.*float"):
        step(layer, aligned(BYTES), arrays[0].astype(np.float64), *arrays[1:])


def test_a_full_cache_and_one_of_another_spec_or_identity_are_refused_and_left_alone(
    session_options: Any,
) -> None:
    arrays = (rows(1, 70, 2, 64), rows(2, 70, 2, 64), rows(3, 1, 4, 64))
    layer, block = session(session_options), aligned(1 << 16)
    step(layer, block, *arrays)
    before = block.copy()
    other = Identity(model="another model", tokenizer="a tokenizer")
    wide = Spec(**SHAPE, keys="turbo:4", values="turbo:3", window=16, sinks=4)
    cases = [
        (layer, (rows(1, 5000, 2, 64), rows(2, 5000, 2, 64)), "KV_E_MEMORY: block: full"),
        (session(session_options, model=7), arrays[:2], "KV_E_IDENTITY.*model is another cache's"),
        (session(session_options, wide), arrays[:2], "KV_E_IDENTITY.*is another spec's"),
    ]
    assert other.model_hash != (SPEC.identity or other).model_hash
    for refusing, (keys, values), says in cases:
        with pytest.raises(Exception, match=f"node 'layer_0/append', {says}"):
            step(refusing, block, keys, values, arrays[2])
        np.testing.assert_array_equal(block, before)


def test_one_bad_sequence_leaves_all_of_them_alone(session_options: Any) -> None:
    layer = session(session_options)
    blocks = aligned(2 * BYTES).reshape(2, BYTES)
    keys, query = rows(1, 2, 5, 2, 64), rows(3, 2, 1, 4, 64)
    keys[1, 3, 1, 9] = np.nan
    with pytest.raises(Exception, match=r"sequence 1: append: key is NaN at layer 0, token 3"):
        step(layer, blocks, keys, rows(2, 2, 5, 2, 64), query)
    assert not blocks.any()


def test_an_output_that_is_another_buffer_is_refused_unless_a_copy_is_asked_for(
    session_options: Any,
) -> None:
    feeds: dict[str, Any] = {
        "cache": aligned(BYTES),
        "keys": rows(1, 5, 2, 64),
        "values": rows(2, 5, 2, 64),
        "query": rows(3, 1, 4, 64),
    }
    with pytest.raises(Exception, match="bind both to one value"):
        session(session_options).run(None, feeds)
    copied, _ = session(session_options, in_place=0).run(None, feeds)
    assert copied.any()
    assert not feeds["cache"].any()


def test_a_missing_package_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = OrtBackendProvider("ort")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    states = provider.variants().values()
    assert any("pip install onnxruntime onnx" in state.reason for state in states)
    with pytest.raises(UnavailableError, match="missing-package"):
        provider.load("scalar")


def test_loading_leaves_the_entry_point_what_it_was() -> None:
    """A module of the package with the entry point's name would take its place when imported."""
    provider = kvassay_backends.ort.backend
    provider.load(next(name for name, state in provider.variants().items() if state.runs))
    assert kvassay_backends.ort.backend is provider


@pytest.mark.parametrize(
    "codecs",
    [
        {"keys": "turbo:3.5", "values": "turbo:3", "key_centre": "page", "value_centre": "frozen"},
        {"keys": "turbo:3+qjl", "values": "turbo:4", "span": 60},
        {"keys": "kivi:2", "values": "kivi:2"},
        {},
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_cache_of_several_layers_equals_the_references(
    codecs: dict[str, Any], threads: int
) -> None:
    spec = Spec(**{**SHAPE, "layers": 2}, window=8, sinks=3, **codecs)
    provider = kvassay_backends.ort.backend
    variant = next(name for name, state in provider.variants().items() if state.runs)
    with (
        reference.load("scalar").prepare(spec) as expected,
        provider.load(variant).prepare(spec, threads) as cache,
    ):
        for turn, tokens in enumerate((1, 3, 50, 1, 100, 7)):
            for layer in range(2):
                keys, values = rows(turn, tokens, 2, 64), rows(turn + 50, tokens, 2, 64)
                query = rows(turn + 90, 1, 4, 64)
                for one in (expected, cache):
                    one.append(layer, keys, values)
                found = cache.attend(layer, query), cache.scores(layer, query[0])
                np.testing.assert_array_equal(found[0], expected.attend(layer, query))
                np.testing.assert_array_equal(found[1], expected.scores(layer, query[0]))
        assert cache.dump() == expected.dump()
        assert cache.counters.variants_ran == (variant,)
        assert cache.counters.pages_encoded == expected.counters.pages_encoded
        with provider.load(variant).restore(spec, expected.dump()) as again, cache.fork() as fork:
            assert again.dump() == fork.dump() == expected.dump()
