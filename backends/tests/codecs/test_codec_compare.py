"""`kvassay codecs`: equal inputs, baselines that must prove themselves, losers that are printed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from codec_tools import NAMES, make

from kvassay.cli import run
from kvassay.distortion import KINDS, captured, measure, synthetic
from kvassay.distortion.describe import STATIC, facts, measured
from kvassay.distortion.figures import check_baselines, ranked
from kvassay.errors import InputError, KvassayError
from kvassay.models import tiny, tiny_tokens
from kvassay.protocol import FloatArray
from kvassay.vector_codec import Encoded, codec
from kvassay_codecs import published
from kvassay_codecs.kivi import KIVI
from kvassay_codecs.llama_cpp import Q4_0, Q8_0

DOCS = Path(__file__).resolve().parents[3] / "docs" / "codecs.md"
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("kind", KINDS)
def test_data_has_a_digest_and_is_no_transforms_stream(kind: str) -> None:
    one, again = synthetic(kind, 64, 132), synthetic(kind, 64, 132)
    assert one.digest == again.digest
    assert one.digest != synthetic(kind, 64, 132, seed=1).digest
    assert not np.array_equal(one.k, one.learn)
    assert len({synthetic(other, 64, 132).digest for other in KINDS}) == len(KINDS)


def test_data_that_fills_no_page_is_refused() -> None:
    with pytest.raises(InputError, match="at least 132"):
        synthetic("gaussian", 64, 100)
    with pytest.raises(InputError, match="no kind 'gauss'; did you mean 'gaussian'"):
        synthetic("gauss")


def test_figures_of_a_baseline_and_of_fewer_bits() -> None:
    data = synthetic("gaussian", 64, 132)
    exact, fine, coarse = (
        measure(make(name, 64, bits=bits), data)
        for name, bits in (("fp16", 16), ("kivi", 4), ("kivi", 2))
    )
    assert exact.page_bits == exact.all_in_bits == 16
    assert exact.nmse < 1e-7
    assert exact.top10 is not None
    assert exact.top10 > 0.99
    assert 0 < exact.loss < 1e-5
    assert exact.loss < fine.loss < coarse.loss
    assert exact.cosine_error < fine.cosine_error < coarse.cosine_error
    value = measure(make("kivi", 64, bits=2, role="value"), data)
    assert value.output_error is not None
    assert 0.02 < value.output_error < value.nmse**0.5 * 1.2


def test_codecs_learn_from_other_vectors() -> None:
    data = synthetic("gaussian", 64, 516)
    honest = measure(make("pq", 64), data)
    by_heart = measure(make("pq", 64), replace(data, learn=data.k[4:]))
    assert by_heart.nmse < 0.8 * honest.nmse


def test_sinks_are_exact_for_every_arm() -> None:
    data = synthetic("gaussian", 64, 132)
    k = data.k.copy()
    k[:4] = 100
    figures = measure(make("kivi", 64, bits=2), replace(data, k=k))
    assert figures.nmse == measure(make("kivi", 64, bits=2), data).nmse


def test_losers_are_named_with_the_arm_that_beats_them() -> None:
    data = synthetic("outliers", 64, 132)
    arms = ranked([measure(make(name, 64), data) for name in ("q4_0", "kivi", "q4_1", "q8_0")])
    assert [arm.page_bits for arm in arms] == sorted(arm.page_bits for arm in arms)
    assert arms[0].loses_to is None
    for arm in arms:
        better = [a for a in arms if a.page_bits <= arm.page_bits and a.loss < arm.loss]
        assert (arm.loses_to is None) == (not better)


class LazyKIVI(KIVI):
    """Planted: keys that arrive are never quantized."""

    def encode(self, x: FloatArray) -> Encoded:
        return make("fp16", self.head_dim).encode(x)


class CoarseQ8(Q8_0):
    """Planted: an int8 that uses 16 levels."""

    def _blocks(self, x: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        coarse = Q4_0(bits=4.0, head_dim=self.head_dim, role=self.role)
        return super()._blocks(coarse._numbers(coarse._blocks(x)))


@pytest.mark.parametrize(
    ("cls", "name", "bits", "message"),
    [
        (LazyKIVI, "kivi", 2.0, "keeps 40 of 40 tokens as fp16"),
        (CoarseQ8, "q8_0", 8.0, "levels in a block of 32"),
    ],
)
def test_baselines_that_are_not_what_they_say_stop_the_comparison(
    cls: type[KIVI], name: str, bits: float, message: str
) -> None:
    planted = cls(bits=bits, head_dim=64, role="key")
    planted.name = name
    with pytest.raises(KvassayError, match=message):
        check_baselines({name: planted})
    check_baselines({name: make(name, 64), "fp16": make("fp16", 64)})


def test_queries_keys_and_values_of_a_model() -> None:
    model = tiny("gqa")
    texts = (tiny_tokens(200, 1), tiny_tokens(200, 2))
    data = captured(model, "tiny", 140, texts)
    assert data.k.shape == data.v.shape == data.learn.shape == (140, 4, 64)
    assert data.q.shape == (32 * 3, 4, 64)
    found = [measure(make("kivi", 64, bits=bits), data).loss for bits in (2, 4)]
    assert found[1] < found[0] < 1
    assert data.rope_base == model.config.rope_base
    assert measure(make("kvquant", 64, rope_base=data.rope_base), data).loss < 1


SMALL = ("--data", "gaussian", "--tokens", "132", "--head-dim", "64")


def test_command_prints_every_arm(capsys: Capture) -> None:
    assert run(["codecs", "--codec", "kivi", "--codec", "q4_0", *SMALL]) == 0
    out = capsys.readouterr().out
    assert synthetic("gaussian", 64, 132).digest in out
    assert len(re.findall(r"^ kivi ", out, re.MULTILINE)) == 4
    assert len(re.findall(r"^ q4_0 ", out, re.MULTILINE)) == 1
    said = " ".join(out.split())
    assert "loses to: of those of no more page bits the codec of least attention KL, where" in said
    assert "inputs: the first 12 hex digits of the SHA-256 of the keys, values and queries" in said


def test_command_writes_json_and_a_page(tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    asked = ["codecs", "--codec", "kivi", "--role", "value", "--json", "--plot", str(page)]
    assert run([*asked, *SMALL]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["codec"] for row in rows} == {"kivi"}
    assert all(row["output_error"] > 0 for row in rows)
    html = page.read_text()
    assert html.count("<svg") == 1
    assert "http" not in re.sub(r'"http://www\.w3\.org[^"]*"', "", html)
    assert html.count("<tr>") == 1 + len(rows)
    assert "loses to: of those of no more page bits the codec of least NMSE" in html
    assert "SHA-256 of the keys" in html


def test_command_says_what_it_leaves_out_and_what_is_wrong(capsys: Capture) -> None:
    small = ("--data", "gaussian", "--tokens", "132", "--head-dim", "80")
    assert run(["codecs", "--codec", "q4_0", "--codec", "fp16", *small]) == 0
    assert "not a multiple of 32" in capsys.readouterr().err
    for wrong in (["--codec", "kiwi"], ["--data", "gauss"], ["--role", "keys", *SMALL]):
        assert run(["codecs", *wrong]) == 2
    assert "did you mean 'kivi'" in capsys.readouterr().err


def _rows() -> dict[str, list[str]]:
    rows = {}
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        cells = [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", line[2:-2])]
        if re.fullmatch(r"`\w+`", cells[0]) and len(cells) > STATIC:
            rows[cells[0].strip("`")] = cells
    return rows


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    rows = _rows()
    assert list(rows) == list(NAMES) == list(published)
    assert {name: tuple(row[:STATIC]) for name, row in rows.items()} == {
        name: facts(name) for name in NAMES
    }


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_figures_of_the_docs_are_measured(name: str) -> None:
    printed = [float(cell) for cell in _rows()[name][STATIC:]]
    found = [float(cell) for cell in measured(name)]
    assert np.abs(np.divide(found, printed) - 1).max() < 0.05


@pytest.mark.parametrize(
    ("name", "claims", "digit"),
    [
        ("turboquant_mse", (0.36, 0.117, 0.03, 0.009), (0.01, 0.001, 0.01, 0.001)),
        ("fast_turboquant", (0.36, 0.117, 0.03, 0.009), (0.01, 0.001, 0.01, 0.001)),
        ("drive", (0.571,), (0.001,)),
    ],
)
def test_what_is_called_corroborated_is(
    name: str, claims: tuple[float, ...], digit: tuple[float, ...]
) -> None:
    """The claimed errors to the digits given, and 1 % for the sample."""
    assert published[name].label == "corroborated"
    gaussian = synthetic("gaussian", 128)
    found = [
        measure(codec(name, bits=bits, head_dim=128), gaussian).nmse
        for bits in range(1, 1 + len(claims))
    ]
    off = np.abs(np.subtract(found, claims))
    assert (off <= np.divide(digit, 2) + 0.01 * np.array(claims)).all(), found


def test_claims_are_labelled_as_the_docs_say() -> None:
    page = (DOCS.parent / "add-a-backend.md").read_text(encoding="utf-8")
    for name in NAMES:
        label = facts(name)[5]
        assert label == "-" or all(
            f"| {part.partition(' at ')[0].partition(':')[0].removeprefix('else ')} |" in page
            for part in label.replace(";", ",").split(", ")
        ), label
