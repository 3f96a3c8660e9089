"""From outside the repository: an installed package is found, checked and judged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvassay.skeletons.write import write_skeleton

ENTRY = "[kvassay.backends]\nmine = mine:Mine\n"
METADATA = "Metadata-Version: 2.1\nName: mine-package\nVersion: 0.1\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which a package with a backend is installed as pip would do it."""
    write_skeleton("mine", "python", tmp_path / "sources")
    folder = tmp_path / "site"
    info = folder / "mine_package-0.1.dist-info"
    info.mkdir(parents=True)
    (folder / "mine.py").write_bytes((tmp_path / "sources" / "mine.py").read_bytes())
    (info / "METADATA").write_text(METADATA, encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY, encoding="utf-8")
    return folder


def elsewhere(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder with that package installed."""
    folder = site.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


FP16 = ("--preset", "fp16", "--judge-named", "--depth", "quick", "--jobs", "1", "--quiet")


def test_an_unknown_package(site: Path) -> None:
    done = elsewhere(site, "kvassay", "conformance", "mine-pakcage", *FP16)
    assert done.returncode == 2
    assert "did you mean 'mine-package'" in done.stderr


@pytest.mark.long
def test_conformance_of_an_installed_package(site: Path) -> None:
    done = elsewhere(site, "kvassay", "conformance", "mine-package", *FP16)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine: protocol 1, bounded by 1e-05, variants: numpy ready" in done.stdout
    source = site / "mine.py"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("* spec.softmax_scale", "* 1.001 * spec.softmax_scale"))
    done = elsewhere(site, "kvassay", "conformance", "mine", *FP16)
    assert done.returncode == 1
    assert "parity.relative_error" in done.stdout


def test_the_suites_run_under_pytest(site: Path) -> None:
    suite = ("--pyargs", "kvassay_suites.parity", "-p", "no:cacheprovider", "-q")
    asked = ("--kvassay-backend", "mine", "--kvassay-preset", "fp16", "--kvassay-depth", "quick")
    done = elsewhere(site, "pytest", *suite, *asked, "-k", "page")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 1


def test_a_class_in_the_folder_one_works_in(site: Path) -> None:
    """By the command itself: `python -m pytest` would look there anyway."""
    command = [str(Path(sys.executable).with_name("pytest")), "-p", "no:cacheprovider", "-q"]
    suite = ("--pyargs", "kvassay_suites.parity", "--collect-only", "--kvassay-depth", "quick")
    asked = ("--kvassay-backend", "mine:Mine", "--kvassay-preset", "fp16")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*command, *suite, *asked], cwd=site, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine:Mine.numpy" in done.stdout
