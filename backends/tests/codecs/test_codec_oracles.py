"""Codecs against implementations that share no code with them."""

from __future__ import annotations

import sys

import faiss
import gguf
import numpy as np
import pytest
from codec_tools import decoded, gaussian, make, units
from gguf.quants import dequantize, quantize

import kvassay
from kvassay.errors import UnavailableError
from kvassay.page.layout import PageLayout
from kvassay.vector_codec import VectorCodec
from kvassay_codecs import codebooks
from kvassay_codecs.base import EncodedArrays
from kvassay_codecs.eden import scale_factor

GGML = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


def _held(
    codec: VectorCodec, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> EncodedArrays:
    encoded = codec.encode(x)
    assert isinstance(encoded, EncodedArrays)
    return encoded


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", ["biased", "unbiased"])
def test_eden_is_that_of_faiss(bits: int, scale: str) -> None:
    """faiss.IndexEDEN does not rotate: the same vectors through our codebook and scale."""
    x = gaussian(1, 500, 64)
    index = faiss.IndexEDEN(64, faiss.METRIC_L2, bits)
    index.scale_type = getattr(faiss, f"EDENScaleType_{scale.upper()}")
    index.train(x)
    centre = faiss.vector_to_array(index.center)
    theirs = index.sa_decode(index.sa_encode(x))
    y = x - (centre if centre.size else 0)
    spread = np.linalg.norm(y, axis=1, keepdims=True) / 8
    book = codebooks.gaussian(bits)[0]
    q = book[codebooks.nearest(y / spread, book)]
    ours = scale_factor(scale, y, q)[:, np.newaxis] * q + (centre if centre.size else 0)
    error = np.square(ours - theirs).sum(1) / np.square(x).sum(1)
    assert error.max() < 1e-6

    codec = make(f"eden_{scale}", 64, bits=bits, rotation="none")
    mine = decoded(codec, y.astype(np.float32)) + (centre if centre.size else 0)
    assert np.abs(mine - theirs).max() < 2.0**-10 * np.abs(theirs).max()


@pytest.mark.parametrize("name", GGML)
@pytest.mark.parametrize("power", [-20, -3, 0, 6])
def test_blocks_are_those_of_gguf(name: str, power: int) -> None:
    """The package's quantizers are kept equal to ggml's by llama.cpp's own tests."""
    kind = gguf.GGMLQuantizationType[name.upper()]
    x = gaussian(2, 300, 96) * np.float32(2.0**power)
    x[7] = 0
    x[8] = 1.5 * np.float32(2.0**power)
    encoded = _held(make(name, 96), x)
    theirs = quantize(x, kind)
    assert encoded.held["blocks"].tobytes() == theirs.tobytes()
    assert (encoded.decode() == dequantize(theirs, kind)).all()


def test_iq4_nl_decodes_as_gguf_and_searches_as_written() -> None:
    """The package only reads this one: bytes by a scalar transcription of the search."""
    x = gaussian(3, 60, 64) * np.float32(5)
    x[3] = 0
    encoded = _held(make("iq4_nl", 64), x)
    blocks = encoded.held["blocks"].reshape(-1, 18)
    kind = gguf.GGMLQuantizationType.IQ4_NL
    assert (encoded.decode().reshape(-1, 32) == dequantize(blocks, kind)).all()
    levels = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
    for row, block in zip(x.reshape(-1, 32), blocks, strict=True):
        largest = max(row, key=abs)
        if largest == 0:
            assert not block.any()
            continue
        inverse = np.float32(1) / (largest / np.float32(-127))
        codes = [min(range(16), key=lambda i: (abs(v * inverse - levels[i]), -i)) for v in row]
        low = [codes[j] | codes[j + 16] << 4 for j in range(16)]
        assert block[2:].tolist() == low
        weights = row.astype(np.float64) ** 2
        q = np.array([levels[c] for c in codes], np.float64)
        step = (weights * q * row).sum() / (weights * q * q).sum()
        found = float(block[:2].view(np.float16)[0])
        assert found == pytest.approx(step, rel=2.0**-10)


@pytest.mark.parametrize("role", ["key", "value"])
@pytest.mark.parametrize("bits", [2, 2.5, 3, 3.5, 4])
def test_turbo_is_what_a_page_of_the_backend_holds(role: str, bits: float) -> None:
    """Bytes of a sealed page of the native cache, and what attention reads from it."""
    x = gaussian(4, 128, 2, 64).astype(np.float16).astype(np.float32)
    stream = "keys" if role == "key" else "values"
    spec = kvassay.Spec(
        layers=1,
        kv_heads=2,
        query_heads=2,
        head_dim=64,
        **{stream: f"turbo:{bits:g}"},  # type: ignore[arg-type]
        key_centre="page" if role == "key" else "none",
        softmax_scale=1.0,
        page_tokens=64,
    )
    codec = make("turbo", 64, bits=bits, role=role)
    encoded = _held(codec, x)
    with kvassay.load("reference").prepare(spec) as cache:
        cache.append(0, x, x)
        first, second = (
            (np.asarray(cache.scores(0, np.eye(64, dtype=np.float32)[[c, c]])) for c in (5, 40))
            if role == "key"
            else (None, None)
        )
    parts = encoded.parts
    page = PageLayout(spec.layer(0))
    assert parts["codes"] == 2 * page[f"{role}_codes"].size
    assert parts["scales"] == 2 * page[f"{role}_scales"].size
    if first is not None and second is not None:
        y = encoded.decode()
        for scores, channel in ((first, 5), (second, 40)):
            error = np.abs(scores - y[:, :, channel].T).max()
            assert error < 0.02 * np.abs(y).max()  # the backend rounds its query to 7 bits


def test_pq_without_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UnavailableError, match="pip install faiss-cpu"):
        make("pq", 64)


def test_pq_codes_are_those_of_faiss() -> None:
    x = units(5, 600, 64)
    codec = make("pq", 64, bits=2).fit(x)
    encoded = _held(codec, x)
    centroids = encoded.held["fitted centroids"].astype(np.float64)
    parts = x.reshape(len(x), 16, 1, 4).astype(np.float64)
    nearest = np.square(parts - centroids).sum(-1).argmin(-1)
    assert (nearest == encoded.held["codes"][0]).mean() > 0.999
