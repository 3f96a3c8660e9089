"""A mismatch is located, written to a file, and replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvassay
from kvassay.protocol import Backend, Cache, Counters, FloatArray, Support

from ..common.specs import ONE_LAYER, make_spec
from ..oracle import flip_code
from . import locate
from .grid import case_of
from .measure import measure
from .replay import main

HERE = "kvassay_suites.parity.test_replay"


class OneUlpCache(Cache):
    """The reference's cache; the last channel of one output is the next float."""

    def __init__(self, inner: Cache, make: Any) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.make = make

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        self.inner.append(layer, k, v)

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = self.inner.attend(layer, q).copy()
        if q.ndim == 3 and len(q) == 5:
            out[2, 3, -1] = np.nextafter(out[2, 3, -1], np.float32(np.inf))
        return out

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        return self.inner.scores(layer, q)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.inner.lengths

    @property
    def nbytes(self) -> dict[str, int]:
        return self.inner.nbytes

    @property
    def counters(self) -> Counters:
        return self.inner.counters

    def pages(self, layer: int) -> list[bytes]:
        return self.inner.pages(layer)

    def truncate(self, n: int) -> None:
        self.inner.truncate(n)

    def fork(self) -> Cache:
        return type(self)(self.inner.fork(), self.make)

    def reset(self) -> None:
        self.inner.reset()

    def close(self) -> None:
        self.inner.close()

    def dump_bytes(self) -> bytes:
        return self.inner.dump_bytes()


class OneUlp(Backend):
    """A backend that is off by one unit in the last place, on one path."""

    name = f"{HERE}:OneUlp"
    variant = "scalar"
    wrapper: type[OneUlpCache] = OneUlpCache

    def __init__(self) -> None:
        self.inner = kvassay.load("reference")

    def supports(self, spec: kvassay.Spec) -> Support:
        return self.inner.supports(spec)

    def prepare(self, spec: kvassay.Spec, threads: int = 1) -> Cache:
        return self.wrapper(self.inner.prepare(spec, threads), self)

    def restore_bytes(self, spec: kvassay.Spec, data: bytes, threads: int = 1) -> Cache:
        return self.wrapper(self.inner.restore_bytes(spec, data, threads), self)


def _case(**fields: Any) -> dict[str, Any]:
    spec = make_spec(
        kv_heads=2, query_heads=4, head_dim=64, keys="turbo:3", values="turbo:3.5",
        page_tokens=16, **fields,
    )  # fmt: skip
    return case_of(spec, "mixed", 1, "one append", 5)


def test_one_ulp_is_located_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVASSAY_REPLAY_DIR", str(tmp_path))
    (record,) = measure(f"{HERE}:OneUlp", "scalar", ONE_LAYER, "one ulp", [_case()])
    first = record.detail["first"]
    assert record.value == 1
    assert (first["stage"], first["layer"], first["query"]) == ("attend", 0, 2)
    assert (first["head"], first["channel"]) == (3, 63)
    assert abs(int(first["expected"], 16) - int(first["found"], 16)) == 1

    (path,) = tmp_path.glob("*.replay.json")
    assert str(path) in record.reproduce
    assert main([str(path)]) == 1
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["channel"] == 63
    assert main([str(path), "--backend", "reference"]) == 0


def test_a_broken_replay_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.replay.json"
    for text in ("", "{}", '{"replay": 1}', "[1]"):
        path.write_text(text)
        assert main([str(path)]) == 2
        assert capsys.readouterr().err.startswith("replay: ")


@pytest.mark.parametrize("stream", ["key codes", "value codes"])
def test_a_wrong_code_is_located(stream: str) -> None:
    case = _case(sinks=2)
    spec = kvassay.Spec.from_dict(case["spec"])
    random = np.random.default_rng(1)
    rows = random.standard_normal((34, 2, 64)).astype(np.float32)
    with kvassay.load("reference").prepare(spec) as cache:
        cache.append(0, rows, rows)
        dump = cache.dump()
        changed = flip_code(dump, 0, 1, stream, head=1, token=15, channel=63, bit=2)
        with kvassay.load("reference").restore(spec, changed) as other:
            where = locate.in_page(cache.pages(0)[1], other.pages(0)[1])
    place = {name: where[name] for name in ("stage", "head", "token", "channel")}
    assert place == {"stage": stream, "head": 1, "token": 2 + 16 + 15, "channel": 63}
    assert int(where["expected"], 16) ^ int(where["found"], 16) == 4
