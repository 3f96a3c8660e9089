"""The golden files themselves: complete, of these inputs, readable by the oracle alone.

That every backend agrees with them is a task of the parity suite.
"""

import numpy as np
import pytest

from ..oracle import attend64, decode_cache
from . import write
from .cases import CASES, QUERIES, SUFFIXES, config, folder, inputs, read, read_config, spec_of


def test_every_case_has_its_files() -> None:
    expected = {f"{name}.{suffix}" for name in CASES for suffix in SUFFIXES}
    assert {path.name for path in folder().iterdir()} == expected


@pytest.mark.parametrize("name", CASES)
def test_config_is_that_of_the_case(name: str) -> None:
    kept = read_config(name)
    case = config(name)
    assert kept["tokens"] == case["tokens"]
    assert kept["golden"] == case["golden"]
    assert spec_of(name) == type(spec_of(name)).from_dict(kept["spec"])


@pytest.mark.parametrize("name", CASES)
def test_oracle_reads_the_dump(name: str) -> None:
    """A reader written from the documents alone gives the keys, and nearly the outputs."""
    spec = spec_of(name)
    outputs = np.frombuffer(read(name, "outputs"), "<f4")
    shape = (spec.layers, QUERIES, spec.query_heads, spec.head_dim)
    for layer, (state, found) in enumerate(
        zip(decode_cache(read(name, "dump")), outputs.reshape(shape), strict=True)
    ):
        k, v, q = inputs(name, layer)
        assert len(state.k) == len(k)
        rest = (state.softmax_scale, state.span, state.sinks, len(k))
        exact = attend64(state.k, state.v, q[-1], *rest)
        assert np.abs(found[-1] - exact).max() < 0.02 * np.abs(v).max()
        if spec.layer(layer).keys.rotated and spec.layer(layer).key_centre == "none":
            assert not state.k[0].any(), "the zero vector"


def test_writing_again_leaves_files_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in folder().iterdir()}
    assert write.main() == 0
    assert {path.name: path.read_bytes() for path in folder().iterdir()} == before
    assert capsys.readouterr().out.count("left as it is") == len(CASES)
