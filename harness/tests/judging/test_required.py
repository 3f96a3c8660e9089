"""The switch that turns a variant that is not run into a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvassay.errors import UnavailableError, UnknownBackendError
from kvassay.judging.required import REQUIRED, check_required, required_variants
from kvassay.protocol import Availability
from kvassay.suite import Target

KNOWN = {
    "native": {
        "avx2": Availability("ready"),
        "neon": Availability("emulated", "qemu"),
        "avx512": Availability("unsupported-cpu", "this CPU lacks avx512f"),
    }
}
KVASSAY = "from kvassay.cli import main; main()"
RAN = (Target("native", "avx2"),)


def test_nothing_is_required_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    assert required_variants() == ()
    check_required(KNOWN, ())


def test_names_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "avx2, neon,,avx2")
    assert required_variants() == ("avx2", "neon")
    check_required(KNOWN)
    check_required(KNOWN, (*RAN, Target("native", "neon")))


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("avx512", UnavailableError, "avx512 is not run .*this CPU lacks avx512f"),
        ("neon", UnavailableError, "neon is not run: it was not asked for"),
        ("avx3", UnknownBackendError, "no variant 'avx3' among native"),
    ],
)
def test_what_is_not_run_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, names: str, error: type[Exception], message: str
) -> None:
    monkeypatch.setenv(REQUIRED, names)
    with pytest.raises(error, match=message):
        check_required(KNOWN, RAN)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *command: str) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "400")
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_command_line_heeds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(REQUIRED, "scalar,sve2")
    status, said = run(monkeypatch, tmp_path, "-c", KVASSAY, "parity", "--backend", "reference")
    assert status == 2
    assert "KVASSAY_REQUIRE_VARIANTS: no variant 'sve2'" in said


def test_pytest_heeds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(REQUIRED, "sve2")
    arguments = ("--pyargs", "kvassay_suites.parity.test_parity", "--kvassay-backend", "reference")
    options = ("--kvassay-depth", "quick", "-q", "-p", "no:cacheprovider")
    status, said = run(monkeypatch, tmp_path, "-m", "pytest", *arguments, *options)
    assert status != 0
    assert "KVASSAY_REQUIRE_VARIANTS: no variant 'sve2'" in said
