"""The optional model: where its parts are looked for and how they are joined."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from kvassay.errors import ModelError
from kvassay.models import GEMMA, gemma, load


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four packages with a few bytes each, and an empty cache folder."""
    for number in range(4):
        folder = tmp_path / f"stand_in_part{number + 1}"
        (folder / "data").mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('must not be imported')")
        (folder / "data" / f"gemma-3-270m-q4_k_m.gguf.part{number:02d}").write_bytes(
            bytes([number]) * 3
        )
    monkeypatch.setattr(gemma, "_PACKAGE", "stand_in")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


JOINED = bytes([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])


def test_parts_are_joined_once_and_checked(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemma, "SHA256", hashlib.sha256(JOINED).hexdigest())
    path = gemma.find_gemma()
    assert path.read_bytes() == JOINED
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert "stand_in_part1" not in sys.modules
    (parts / "stand_in_part1" / "data" / "gemma-3-270m-q4_k_m.gguf.part00").unlink()
    assert gemma.find_gemma() == path


def test_other_parts_are_refused_and_leave_nothing(parts: Path) -> None:
    with pytest.raises(ModelError, match="join to another file"):
        gemma.find_gemma()
    assert not list((parts / "cache" / "kvassay").iterdir())


def test_a_missing_part_is_named_with_the_install_line(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parts / "stand_in_part3" / "data" / "gemma-3-270m-q4_k_m.gguf.part02").unlink()
    with pytest.raises(ModelError, match=r"part 3 of 4 is not installed: run `pip install"):
        load(GEMMA)
