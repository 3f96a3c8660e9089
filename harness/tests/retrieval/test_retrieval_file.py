"""Files of an index: what is saved is loaded, and nothing else is."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from vectors import filled, gaussian, state

from kvassay.errors import InputError, PageError, WriteError
from kvassay.retrieval import Affine, Calibration, Index, scorers


def kinds() -> dict[str, Callable[[], Index]]:
    def calibrated() -> Index:
        index = Index(20, 3, True, "reference", metric="cosine", seed=7)
        index.calibrate(gaussian(1, 4000, 20), "5-95")
        index.add(gaussian(2, 33, 20), ids=np.arange(33) * 5)
        return index

    def centred() -> Index:
        index = Index(40, 4, backend="reference")
        index.calibrate(gaussian(1, 300, 40) + 2, "mean")
        index.add(gaussian(2, 33, 40))
        return index

    return {
        "plain": lambda: filled(40, 24),
        "empty": lambda: Index(24, 2, backend="reference"),
        "slabs": lambda: filled(17, 600, bits=2),
        "everything": calibrated,
        "mean": centred,
    }


@pytest.mark.parametrize("kind", kinds())
def test_a_saved_index_is_the_same(kind: str, tmp_path: Path) -> None:
    index, path = kinds()[kind](), tmp_path / "a.kvri"
    index.save(path)
    other = Index.load(path, "reference")
    assert state(other) == state(index)
    assert (other.code, other.metric) == (index.code, index.metric)
    assert other.search(gaussian(3, 4, index.code.dim), 9)[0].tobytes() == (
        index.search(gaussian(3, 4, index.code.dim), 9)[0].tobytes()
    )
    again = tmp_path / "b.kvri"
    other.save(again)
    assert again.read_bytes() == path.read_bytes()
    more = gaussian(4, 5, index.code.dim)
    assert index.add(more).tolist() == other.add(more).tolist()
    assert state(other) == state(index)


def test_a_loaded_index_is_mapped_and_never_written_through(tmp_path: Path) -> None:
    path = tmp_path / "a.kvri"
    filled(40, 24, keep_vectors=True).save(path)
    before = path.read_bytes()
    index = Index.load(path, "reference")
    assert not index._store.stored.tiles.flags.owndata
    assert not index._store.stored.tiles.flags.writeable
    index.remove([0])
    index.add(gaussian(2, 3, 24))
    index.save(path)
    assert path.read_bytes() != before
    assert state(Index.load(path, "reference")) == state(index)


def test_every_flipped_bit_and_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.kvri"
    kinds()["everything"]().save(path)
    good = bytearray(path.read_bytes())
    for bit in [*range(8 * 128), *range(8 * 128, 8 * len(good), 97)]:
        good[bit // 8] ^= 1 << bit % 8
        path.write_bytes(good)
        with pytest.raises(PageError, match=r"a\.kvri"):
            Index.load(path, "reference")
        good[bit // 8] ^= 1 << bit % 8
    for size in (0, 3, 127, 128, 129, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(PageError):
            Index.load(path, "reference")
    path.write_bytes(good + b"\0")
    with pytest.raises(PageError, match="its header says"):
        Index.load(path, "reference")


#: Offset and format of a header field.
FIELDS = {
    "version": (4, "<H"),
    "flags": (6, "<H"),
    "dim": (8, "<I"),
    "bits": (12, "<H"),
    "kind": (14, "<H"),
    "count": (24, "<Q"),
    "next_id": (32, "<Q"),
    "samples": (40, "<Q"),
    "reserved": (100, "<I"),
}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 2, "version 2, this kvassay reads 1"),
        ("flags", 16, "bits that no index has"),
        ("kind", 3, "bits that no index has"),
        ("reserved", 1, "bits that no index has"),
        ("dim", 0, "dim: 0"),
        ("dim", 1 << 31, "outside 1"),
        ("bits", 7, "bits: 7"),
        ("count", 1 << 32, "its header says"),
        ("count", (1 << 64) - 1, "its header says"),
        ("count", 48, "next id 40"),
        ("next_id", 39, "next id 39"),
        ("next_id", (1 << 62) + 1, "ids end at"),
        ("next_id", 1 << 63, "ids end at"),
        ("kind", 1, "not calibrated"),
        ("samples", 300, "not calibrated"),
    ],
)
def test_headers_that_lie_are_refused(field: str, value: int, message: str, tmp_path: Path) -> None:
    """With a checksum that is right: sizes are compared before anything is allocated."""
    path = tmp_path / "a.kvri"
    filled(40, 24).save(path)
    data = bytearray(path.read_bytes())
    offset, kind = FIELDS[field]
    struct.pack_into(kind, data, offset, value)
    path.write_bytes(mended(data, 0, 0))
    refused_by_all(path, message)


def refused_by_all(path: Path, message: str) -> None:
    """Whoever is to score."""
    for name, variants in scorers().items():
        for variant in (v for v, there in variants.items() if there.runs):
            with pytest.raises(PageError, match=message):
                Index.load(path, name, variant=variant)


def mended(data: bytearray, start: int, end: int) -> bytes:
    """The file with the checksum of its first section that is all of [start, end), or of its
    header, made right."""
    if end:
        struct.pack_into("<I", data, 48 + 4 * (start != 128), zlib.crc32(data[start:end]))
    struct.pack_into("<I", data, 124, zlib.crc32(data[:124]))
    return bytes(data)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, -0.0, 1e20, 3e38])
def test_scales_that_no_vector_has_are_refused_behind_a_right_checksum(
    value: float, tmp_path: Path
) -> None:
    path = tmp_path / "a.kvri"
    index = filled(40, 32, bits=4)
    index.save(path)
    data = bytearray(path.read_bytes())
    scales = 128 + 48 * 16
    assert np.frombuffer(data, np.float32, 40, scales).all()
    struct.pack_into("<f", data, scales + 12, value)
    path.write_bytes(mended(data, scales, scales + 192))
    refused_by_all(path, "a scale is one that no vector has")


def test_every_bit_behind_right_checksums_is_refused_or_kept_and_answers(tmp_path: Path) -> None:
    """What loads is saved as it was, and its scores are numbers."""
    path, again = tmp_path / "a.kvri", tmp_path / "b.kvri"
    filled(5, 16, bits=2).save(path)
    good = path.read_bytes()
    scales = 128 + 16 * 4
    assert len(good) == scales + 64
    taken = 0
    for bit in range(8 * 124):
        if 48 <= bit // 8 < 68:  # checksums
            continue
        path.write_bytes(mended(flipped(good, bit), 0, 0))
        taken += kept(path, again)
    for start, end in ((128, scales), (scales, len(good))):
        for bit in range(8 * start, 8 * end):
            path.write_bytes(mended(flipped(good, bit), start, end))
            taken += kept(path, again)
    codes, seed, next_id, cosine = 5 * 16 * 2, 64, 62 - 3 + 2, 1
    assert codes + seed + cosine < taken < codes + seed + cosine + next_id + 5 * 32


def flipped(data: bytes, bit: int) -> bytearray:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return out


def kept(path: Path, again: Path) -> bool:
    """Whether a file loads; what does is saved to the byte and finds numbers."""
    try:
        index = Index.load(path, "reference")
    except PageError:
        return False
    index.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert np.isfinite(index.search(gaussian(3, 1, index.code.dim) * 2.0**30, 5)[0]).all()
    return True


def test_ids_end(tmp_path: Path) -> None:
    index = Index(24, 4, backend="reference")
    assert index.add(gaussian(1, 1, 24), ids=[2**62 - 2]).tolist() == [2**62 - 2]
    assert index.add(gaussian(2, 1, 24)).tolist() == [2**62 - 1]
    index.save(tmp_path / "a.kvri")
    for held in (index, Index.load(tmp_path / "a.kvri", "reference")):
        with pytest.raises(InputError, match="the next id is 4611686018427387904; 1 more are"):
            held.add(gaussian(3, 1, 24))
        assert len(held) == 2


def test_sound_checksums_over_senseless_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.kvri"
    for what, message in (("scales", "scale"), ("vectors", "row 1"), ("ids", "occurs more")):
        index = filled(20, 24, keep_vectors=True)
        index.remove([19])
        if what == "scales":
            index._store._scales[3] = np.nan
        elif what == "vectors":
            index._vectors.view[1, 2] = np.inf  # type: ignore[union-attr]
        else:
            index._ids.view[1] = 0  # type: ignore[union-attr]
        index.save(path)
        with pytest.raises(PageError, match=message):
            Index.load(path, "reference")


@pytest.mark.parametrize(
    ("kind", "row", "value", "message"),
    [
        ("mean", 1, 2.0, "is a mean, but has a gain"),
        ("mean", 0, np.nan, "that no sample gives"),
        ("mean", 0, -(2.0**57), "that no sample gives"),
        ("everything", 1, 0.0, "that no sample gives"),
        ("everything", 1, 2.0**-41, "that no sample gives"),
        ("everything", 1, np.inf, "that no sample gives"),
    ],
)
def test_senseless_calibrations_are_refused(
    kind: str, row: int, value: float, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.kvri"
    index = kinds()[kind]()
    made = index.calibration
    assert made is not None
    both = [made.affine.shift.copy(), np.ones_like(made.affine.shift)]
    if made.affine.gain is not None:
        both[1] = made.affine.gain.copy()
    both[row][3] = value
    index.calibration = Calibration(made.kind, made.samples, Affine(*both))
    index.save(path)
    with pytest.raises(PageError, match=message):
        Index.load(path, "reference")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.kvri"
    filled(40, 24).save(path)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"cannot write index .*No space left"):
        filled(10, 24).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.kvri"]


def test_what_is_no_path_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the path"):
        Index.load(3, "reference")  # type: ignore[arg-type]
    with pytest.raises(PageError, match="cannot read index"):
        Index.load(tmp_path / "none", "reference")
    with pytest.raises(WriteError, match="cannot write index"):
        filled().save(tmp_path / "no" / "folder")
