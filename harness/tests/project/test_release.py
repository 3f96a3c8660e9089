"""Releases: equal bytes wherever and whenever they are made, and every file accounted for."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import archive
import budget
import landing
import pytest
import recipe
import sbom

import release

ROOT: Final = Path(__file__).resolve().parents[3]
SECONDS: Final = 1_700_000_000
FILES: Final = {"a/one.txt": b"1", "a/two.bin": bytes(range(256))}


def project() -> dict[str, Any]:
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {**read["project"], "build": read["build-system"]["requires"]}


def test_one_version_everywhere() -> None:
    js = ROOT / "backends" / "kvassay_backends" / "js" / "package.json"
    crates = ROOT / "backends" / "src" / "rust"
    core = tomllib.loads((crates / "kvassay-capi" / "Cargo.toml").read_text(encoding="utf-8"))
    workspace = tomllib.loads((crates / "Cargo.toml").read_text(encoding="utf-8"))
    found = {
        "package.json": json.loads(js.read_text(encoding="utf-8"))["version"],
        "Cargo.toml": workspace["workspace"]["package"]["version"],
        "kvassay-capi": core["dependencies"]["kvassay-core"]["version"],
        "CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split()[3].strip(","),
    }
    assert set(found.values()) == {release.version()}, found


def test_an_archive_is_the_same_bytes_for_the_same_files(tmp_path: Path) -> None:
    first = archive.write_tar(tmp_path / "one.tar.gz", FILES, SECONDS).read_bytes()
    turned = dict(reversed(FILES.items()))
    assert archive.write_tar(tmp_path / "two.tar.gz", turned, SECONDS).read_bytes() == first
    other = archive.write_tar(tmp_path / "later.tar.gz", FILES, SECONDS + 1).read_bytes()
    assert other != first


def test_the_bill_names_files_requirements_and_nothing_of_the_clock() -> None:
    sums = {"a.whl": "ab" * 32, "b.tgz": "cd" * 32}
    bill = sbom.bill(project(), "0.2.0", sums, SECONDS)
    assert sbom.bill(project(), "0.2.0", sums, SECONDS) == bill
    read = json.loads(bill)
    files = {one["name"]: one for one in read["metadata"]["component"]["components"]}
    assert {name: one["hashes"][0]["content"] for name, one in files.items()} == sums
    scopes = {one["name"]: one["scope"] for one in read["components"]}
    assert scopes["numpy"] == "required"
    assert scopes["onnxruntime"] == "optional"
    assert read["metadata"]["timestamp"].startswith("2023-11-14")


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(recipe.BuildError, match="is not empty"):
        release.release(tmp_path, ["c"], [recipe.host_target()], SECONDS, print)


def test_a_dump_of_other_bytes_is_no_proof(tmp_path: Path) -> None:
    dump = tmp_path / "a.kvdump"
    example = str(ROOT / "docs" / "examples" / "standalone.py")
    landing.run([sys.executable, example, str(dump), "reference"], tmp_path)
    assert landing.same(dump).startswith("dump ")
    content = bytearray(dump.read_bytes())
    content[-1] ^= 1
    dump.write_bytes(content)
    with pytest.raises(landing.Failed, match="other bytes"):
        landing.same(dump)


def test_what_is_missing_is_told_and_not_passed(tmp_path: Path) -> None:
    with pytest.raises(landing.NotRun, match="0 files"):
        landing.node(tmp_path, tmp_path)
    with pytest.raises(landing.NotRun, match="no such-compiler"):
        landing.run(["such-compiler"], tmp_path)
    with pytest.raises(landing.Failed, match="exit"):
        landing.run(["sh", "-c", "echo exit; exit 3"], tmp_path)


def test_modules_are_within_their_budget() -> None:
    modules = sorted((recipe.WASM / "_lib").glob("*.wasm"))
    assert len(modules) == 3
    assert [excess for module in modules if (excess := budget.excess(module))] == []


def test_what_is_too_large_or_has_no_budget_is_told(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(200 * 1024)
    module, other = tmp_path / "kvassay-relaxed.wasm", tmp_path / "kvassay.exe"
    module.write_bytes(noise)
    other.write_bytes(b"")
    assert budget.excess(module).startswith("kvassay-relaxed.wasm: 200 KiB, budget 76 KiB")
    assert budget.excess(other) == "kvassay.exe: no size in budget.toml"


@pytest.mark.long
def test_two_builds_are_equal_to_the_byte(tmp_path: Path) -> None:
    kinds, here = ("sdist", "wheel", "npm", "c"), [recipe.host_target()]
    made = []
    for folder in ("one", "elsewhere/two"):
        output = tmp_path / folder
        states = release.release(output, kinds, here, SECONDS, print)
        release.describe(output, states, SECONDS)
        made.append(
            {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.iterdir()}
        )
    assert len(made[0]) == len(kinds) + 3
    assert made[0] == made[1]
