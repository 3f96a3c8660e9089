"""The golden pack: of the golden bytes, fixed, and enough for a program that is not Python."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvassay.assets import files as assets
from kvassay.assets.files import differences, write_files
from kvassay.cli import golden_pack as packing
from kvassay.cli import run
from kvassay.errors import KvassayError, WriteError

from . import pack
from .contract import Transform, ex2, rne, store_scales
from .steps import PACKED, steps

NODE = shutil.which(os.environ.get("KVASSAY_NODE", "node"))
REQUIRED = os.environ.get("KVASSAY_REQUIRE_ENGINES") == "1"
needs_node = pytest.mark.skipif(
    NODE is None and not REQUIRED, reason="no node: nothing but Python has read the pack"
)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return pack.files()


@pytest.fixture
def folder(files: dict[str, bytes], tmp_path: Path) -> Path:
    write_files(files, tmp_path / "pack")
    return tmp_path / "pack"


def node(folder: Path) -> subprocess.CompletedProcess[str]:
    assert NODE is not None, "KVASSAY_REQUIRE_ENGINES is set, and there is no node"
    command = [NODE, str(folder / "check.mjs")]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("case", PACKED)
def test_the_steps_end_in_the_golden_bytes(case: str) -> None:
    """Codes, scales, scores and outputs that two backends agreed on before they were kept."""
    arrays = steps(case)
    assert pack.unlike_golden(case, arrays) == []
    arrays["output"].view(np.uint32)[0, 0] ^= 1
    assert pack.unlike_golden(case, arrays) == ["output"]


def test_together_the_cases_show_every_branch() -> None:
    manifest = json.loads(pack.MANIFEST.read_text())["cases"]
    specs = [entry["spec"] for entry in manifest.values()]
    assert {spec["scale"] for spec in specs} == {"u8", "u8log", "fp16"}
    assert {spec["rounds"] for spec in specs} == {1, 2}
    assert {spec["key_centre"] for spec in specs} == {"none", "frozen", "page"}
    assert {spec["value_centre"] for spec in specs} == {"none", "frozen"}
    families = {
        codec.partition(":")[0] for spec in specs for codec in (spec["keys"], spec["values"])
    }
    assert families == {"fp16", "turbo", "kivi"}
    assert {spec["scale"] for spec in specs if "+qjl" in spec["keys"]} == {"u8", "fp16"}
    assert any(spec["span"] and spec["sinks"] for spec in specs)
    assert any(spec["sinks"] and spec["window"] for spec in specs)
    assert any(entry["arrays"]["pages"]["shape"][0] > 16 for entry in manifest.values())


def test_the_manifest_says_what_each_file_is(files: dict[str, bytes]) -> None:
    manifest = json.loads(files["manifest.json"])
    assert manifest["pack"] == pack.VERSION
    named = {"manifest.json", "check.mjs"}
    for case in manifest["cases"].values():
        for entry in case["arrays"].values():
            named.add(entry["file"])
            size = np.dtype(entry["dtype"]).itemsize * int(np.prod(entry["shape"]))
            assert len(files[entry["file"]]) == size
            assert len(entry["meaning"]) > 1
    assert named == set(files)


def test_meanings_are_those_of_the_arrays(files: dict[str, bytes]) -> None:
    """Said by the manifest, and so by the numbers."""
    manifest = json.loads(files["manifest.json"])["cases"]
    meanings = {
        name: entry["meaning"]
        for case in manifest.values()
        for name, entry in case["arrays"].items()
    }
    for stream in ("key", "value", "sign"):
        for number in (1, 2):
            assert meanings[f"{stream}.signs{number}"].startswith(f"s{number} of the stream's tra")
        assert meanings[f"{stream}.order"].startswith("perm of the stream's transform")
    assert meanings["key.signs"].startswith("sign bits of the projection")
    assert meanings["key.transformed"].startswith("y = T(r)")
    assert meanings["query.transformed"].startswith("z = T(ql), T of the keys and ql query.scaled")
    for case, entry in manifest.items():
        spec, arrays = entry["spec"], entry["arrays"]

        def array(name: str, arrays: dict[str, Any] = arrays) -> Any:
            told = arrays[name]
            return np.frombuffer(files[told["file"]], told["dtype"]).reshape(told["shape"])

        for stream, of in (("key", "key"), ("value", "value"), ("query", "key")):
            if f"{stream}.transformed" not in arrays:
                continue
            turn = Transform.of(spec["head_dim"], spec["seed"], of == "value", spec["rounds"])
            given = array("query.scaled" if stream == "query" else f"{stream}.residual")
            assert np.array_equal(turn.forward(given), array(f"{stream}.transformed")), case
            assert np.array_equal(turn.signs1, array(f"{of}.signs1"))
            assert np.array_equal(turn.signs2, array(f"{of}.signs2"))
            assert np.array_equal(turn.order, array(f"{of}.order"))


def test_nothing_regenerates_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = pack.MANIFEST.read_bytes()
    assert pack.main() == 0
    assert "left as it is" in capsys.readouterr().out
    assert pack.MANIFEST.read_bytes() == before
    other = tmp_path / "pack.json"
    manifest = json.loads(before)
    manifest["cases"]["d64"]["arrays"]["scores"]["sha256"] = "0" * 64
    other.write_text(json.dumps(manifest))
    monkeypatch.setattr(pack, "MANIFEST", other)
    with pytest.raises(KvassayError, match="d64 scores as computed here is not the one kept"):
        pack.files()


def test_no_manifest_is_written_where_results_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(case: str) -> dict[str, Any]:
        arrays = steps(case)
        arrays["scores"].view(np.uint32)[0, 0] ^= 1
        return arrays

    monkeypatch.setattr(pack, "MANIFEST", tmp_path / "pack.json")
    monkeypatch.setattr(pack, "steps", wrong)
    assert pack.main() == 1
    assert "d64: ['scores'] differ" in capsys.readouterr().err
    assert not (tmp_path / "pack.json").exists()


# --- a program that is not Python -----------------------------------------------------------------


@needs_node
def test_node_computes_the_same(folder: Path) -> None:
    done = node(folder)
    assert done.returncode == 0, done.stderr
    assert f"{len(PACKED)} cases, 191200 numbers, 0 differences" in done.stdout


def _flip(name: str, at: int, case: str = "product") -> Callable[[Path], None]:
    """A flipped bit that the manifest calls right: only computing finds it."""

    def change(folder: Path) -> None:
        path = folder / case / f"{name}.bin"
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        manifest = json.loads((folder / "manifest.json").read_text())
        digest = hashlib.sha256(data).hexdigest()
        manifest["cases"][case]["arrays"][name]["sha256"] = digest
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return change


def _edit(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new, 1))

    return change


@needs_node
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "d64" / "query.bin").write_bytes(bytes(1024)), "digest"),
        (_flip("pages", 100), "product key.codes"),
        (_flip("key.centroids0", 0), "product pages.sums"),
        (_flip("value.order", 4), "product output"),
        (_flip("query", 1), "product query.scaled"),
        (_flip("pages.logits", 0), "product pages.logits"),
        (_flip("output", 0), "product output"),
        (_flip("pages", 6150, "kivi"), "kivi value.steps"),
        (_flip("sign.order", 4, "d112"), "d112 query.projected"),
        (_flip("pages.bias", 0, "kivi"), "kivi pages.bias"),
        (_flip("pages", 65, "fp16"), "fp16 key.codes"),
        (_flip("key.mean", 1, "centred"), "centred pages.logits"),
        (_edit("check.mjs", "token >= tokens - spec.span", "token > tokens - spec.span"), "span "),
        (_edit("check.mjs", "16256", "16255"), "kivi pages.query_unit"),
        (_edit("check.mjs", "Math.ceil(E / 2) - ", "Math.floor(E / 2) - "), "d160 query.constant"),
        (_edit("check.mjs", "16383 / most", "16384 / most"), "value_weights"),
        (_edit("check.mjs", "f(p * r) + c", "p * r + c"), "weights"),
        (_edit("check.mjs", "row(z, h), 127", "row(z, h), 126"), "query.codes"),
        (_edit("check.mjs", "% 16 === 0", "% 32 === 0"), "chunks pages.running"),
    ],
)
def test_what_is_wrong_is_found(change: Callable[[Path], object], says: str, folder: Path) -> None:
    """Each step matters: damage to the pack, and slips in the program, are seen."""
    change(folder)
    done = node(folder)
    assert done.returncode == 1
    assert says in done.stderr


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_and_checks(
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(packing, "pack", {"golden": files}.__getitem__)
    place = tmp_path / "new" / "pack"
    assert run(["golden-pack", str(place)]) == 0
    assert run(["golden-pack", str(place), "--check"]) == 0
    assert "0 differences" in capsys.readouterr().out
    assert run(["golden-pack", str(place)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    (place / "d64" / "scores.bin").unlink()
    (place / "d80" / "scores.bin").write_bytes(bytes(len(files["d80/scores.bin"])))
    (place / "d96" / "scores.bin").write_bytes(b"")
    (place / "more.txt").touch()
    assert run(["golden-pack", str(place), "--check"]) == 1
    out = capsys.readouterr().out
    assert "d64/scores.bin is missing" in out
    assert "d80/scores.bin differs" in out
    assert "d96/scores.bin has 0 bytes" in out
    assert "more.txt does not belong there" in out
    assert "4 differences" in out


def test_a_pack_nobody_offers_and_a_folder_that_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(KvassayError, match="no pack 'none'"):
        assets.pack("none")
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="not an empty folder"):
        write_files({"a": b""}, tmp_path / "file")
    assert differences({"a": b""}, tmp_path / "absent") == ["a is missing"]


# --- the arithmetic alone -------------------------------------------------------------------------


def test_pieces_keep_their_promises() -> None:
    x = np.linspace(-63.9, 0, 1000).astype(np.float32)
    assert np.abs(ex2(x) / np.exp2(x.astype(np.float64)) - 1).max() < 2e-7
    assert ex2(np.array([-64.5, -1000], np.float32)).tolist() == [0, 0]
    assert rne(np.array([0.5, 1.5, -2.5], np.float32)).tolist() == [0, 2, -2]
    turn = Transform.of(80, 3, 0, 2)
    y = np.arange(80, dtype=np.float32)
    assert np.array_equal(turn.back(turn.forward(y)) * (turn.store * turn.read), y)
    zero = store_scales("u8", np.zeros((1, 16), np.float32))
    assert not zero.stored.any()
