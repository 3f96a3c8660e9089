"""The life cycle in long runs; the short ones are tasks of the suite."""

import pytest

import kvassay
from kvassay.errors import IdentityError, PageError

from ...common.inputs import gaussian
from ...common.specs import make_spec
from ...plugin import request_of
from .measure import run


@pytest.mark.long
def test_thousands_of_other_sequences(pytestconfig: pytest.Config) -> None:
    for target in request_of(pytestconfig).targets:
        machine = run(target.backend, target.variant, 1500, 50, same=False)
        assert machine.compared > 10_000


@pytest.mark.long
def test_every_bit_and_every_length_of_a_small_dump(pytestconfig: pytest.Config) -> None:
    """Each bit flipped, each cut: refused. (Fault 38 takes some all over.)"""
    for target in request_of(pytestconfig).targets:
        backend = kvassay.load(target.backend, target.variant)
        fields = {"keys": "turbo:3.5", "values": "turbo:3", "page_tokens": 16, "sinks": 1}
        spec = make_spec(kv_heads=1, query_heads=1, head_dim=16, **fields)
        if not backend.supports(spec):
            continue
        tokens = gaussian(1, 18, 1, 16)
        with backend.prepare(spec) as cache:
            cache.append(0, tokens, tokens)
            dump = cache.dump()
        for bit in range(8 * len(dump)):
            flipped = bytearray(dump)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises((PageError, IdentityError)):
                backend.restore(spec, bytes(flipped))
        for length in range(len(dump)):
            with pytest.raises(PageError):
                backend.restore(spec, dump[:length])
        backend.restore(spec, dump).close()
