"""C test programs under an emulator notice faults planted in the NEON kernels, and the switch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvassay_backends.emulated.provider import EMULATOR

BACKENDS = Path(__file__).resolve().parents[3] / "backends"
NAMES = ("build", "checks", "src")
FLOATS, INTEGERS = "kernels_variants_floats", "kernels_variants"
#: File, its text, the fault, the program that notices it.
FAULTS = {
    "fused sum": (
        *("rows/neon.c", "vaddq_f32(s[r][i], vmulq_n_f32(row.val[i], p[r * p_stride + j]))"),
        *("vfmaq_n_f32(s[r][i], row.val[i], p[r * p_stride + j])", FLOATS),
    ),
    "halves away from zero": ("query/neon.c", "vcvtnq_s32_f32", "vcvtaq_s32_f32", FLOATS),
    "beyond the end": (
        *("softmax/neon.c", "ex2(vsubq_f32(kv_load4(t + j, n - j), maximum))"),
        *("ex2(vsubq_f32(vld1q_f32(t + j), maximum))", FLOATS),
    ),
    "a sum that saturates": (  # twice the sum, halved again: the same but for the largest
        *("tiles/neon.h", "vpadalq_s16(acc, vpaddq_s16(low, high))"),
        "vsraq_n_s32(acc, vpaddlq_s16("
        "vqaddq_s16(vpaddq_s16(low, high), vpaddq_s16(low, high))), 1)",
        INTEGERS,
    ),
    "a threshold to the wrong side": ("encode/neon.c", "vcgeq_f32(size", "vcgtq_f32(size", FLOATS),
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"no {EMULATOR} here"),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The build recipe and the C sources, to plant faults in."""
    folder = tmp_path / "backends"
    folder.mkdir()
    for name in NAMES:
        (shutil.copytree if (BACKENDS / name).is_dir() else shutil.copy)(
            BACKENDS / name, folder / name
        )
    for package in ("native", "wasm", "emulated"):
        (folder / "kvassay_backends" / package).mkdir(parents=True)
    for name in ("build_info.py", "isas.py"):
        shutil.copy(
            BACKENDS / "kvassay_backends" / "native" / name,
            folder / "kvassay_backends" / "native",
        )
    return folder


def emulate(folder: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "checks" / "emulate.py"), program]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(copy: Path, name: str) -> None:
    file, sound, fault, program = FAULTS[name]
    source = copy / "src" / "kernels" / file
    text = source.read_text()
    assert sound in text
    source.write_text(text.replace(sound, fault))
    done = emulate(copy, program)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{program}: failed with status" in done.stdout


def test_a_required_variant_that_the_processor_lacks(copy: Path) -> None:
    old = {"QEMU_CPU": "cortex-a53"}
    done = emulate(copy, INTEGERS, KVASSAY_REQUIRE_VARIANTS="neon", **old)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "variant neondot not run: this CPU lacks asimddp" in done.stdout
    assert emulate(copy, INTEGERS, KVASSAY_REQUIRE_VARIANTS="neon,neondot", **old).returncode == 1


def test_a_required_variant_without_the_emulator(copy: Path) -> None:
    nowhere = {"PATH": ""}
    done = emulate(copy, INTEGERS, KVASSAY_REQUIRE_VARIANTS="", **nowhere)
    assert done.returncode == 0
    assert "not run: qemu-aarch64-static missing: apt install qemu-user-static" in done.stdout
    assert emulate(copy, INTEGERS, KVASSAY_REQUIRE_VARIANTS="neon", **nowhere).returncode == 1
