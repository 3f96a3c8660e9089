"""What the host sets: flush-to-zero, warnings as errors, no temporary folder."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from kvassay_backends.native.provider import PROBED

FLUSHING = """
import ctypes, sys
import numpy as np
import kvassay
from kvassay.errors import UnavailableError

libm = ctypes.CDLL("libm.so.6")
kept, flushing = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()  # the last word is MXCSR
libm.fegetenv(kept)
libm.fegetenv(flushing)
flushing[7] |= 1 << 15 | 1 << 6
spec = kvassay.preset("turbo", layers=1, kv_heads=1, query_heads=1, head_dim=64)
k = np.random.default_rng(0).standard_normal((300, 1, 64), np.float32) * np.float32(1e-4)

def seen(cache):
    return cache.attend(0, k[0] * np.float32(1e4)).tobytes() + cache.scores(0, k[1]).tobytes()

with kvassay.load(sys.argv[1]).prepare(spec) as cache:
    cache.append(0, k, k)
    plain = seen(cache)
    libm.fesetenv(flushing)
    try:
        said = "same bits" if seen(cache) == plain else "other bits"
        cache.append(0, k[:9], k[:9])
    except UnavailableError as error:
        said = f"refused: {error}"
    finally:
        libm.fesetenv(kept)
    assert said == "same bits" or seen(cache) == plain
    print(said)
"""

glibc = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="how to set flush-to-zero is known for glibc on x86-64 alone",
)


@pytest.fixture(autouse=True)
def _probed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process found out about the library would spare its children the probe."""
    monkeypatch.delenv(PROBED, raising=False)


@glibc
@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("reference", "refused: this process flushes"),
        ("wasm", "refused: this process flushes"),
        ("native", "same bits"),
        ("ort", "same bits"),
    ],
)
def test_flushing_holds_the_bits_or_is_refused(backend: str, said: str) -> None:
    command = [sys.executable, "-c", FLUSHING, backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)


LISTING = """
import kvassay
for name, found in kvassay.backends().items():
    for variant, state in found.items():
        print(name, variant, state.status, state.reason)
"""


def listed(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LISTING],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_warnings_as_errors_break_no_backend() -> None:
    """The probe's own start warned, and so every variant was broken."""
    ready = [line for line in listed().splitlines() if line.startswith("native ")]
    strict = listed(PYTHONWARNINGS="error").splitlines()
    assert ready
    assert set(ready) <= set(strict)


def test_without_a_temporary_folder_the_variant_alone_is_broken() -> None:
    """`tempfile` finds none where none of its places can be written."""
    program = LISTING.replace("import kvassay\n", "import kvassay, tempfile\n" + NO_FOLDER, 1)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "reference scalar ready " in lines
    (native,) = [line for line in lines if line.startswith("native scalar")]
    assert "broken cannot be tried" in native
    assert "temporary folder" in native


NO_FOLDER = """
def gone(*_, **__):
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile.gettempdir = tempfile.mkdtemp = gone
tempfile.TemporaryDirectory = gone
"""
