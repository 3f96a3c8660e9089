"""`kvassay new-backend`: every kind is written, built and gated as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from judging_tools import tell, verdict_of
from planted.kit import Probe
from skeleton_tools import make_skeleton

import kvassay
from kvassay import vector_codec
from kvassay.backend.own_formats import OwnFormatBackend
from kvassay.cli import run
from kvassay.skeletons.write import KINDS, Kind, files_of, write_skeleton
from kvassay.spec import Spec
from kvassay.suite import Target

#: What the gate asks of each in seconds: bits of pages, a whole life, identities, faults, memory.
PROBES = (
    Probe("parity", "^page:"),
    Probe("correctness", "^(identity|fault )"),
    Probe("memory", "scratch$"),
)


#: Kinds that store this project's formats.
CACHES = tuple(kind for kind in KINDS if kind != "foreign")


@pytest.fixture(params=CACHES)
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KVASSAY_REPLAY_DIR", str(tmp_path))
    name = make_skeleton(tmp_path / "mine", request.param)
    monkeypatch.syspath_prepend(tmp_path / "mine")  # a folder that is there: a miss is remembered
    return name


def test_each_kind_is_built_and_passes(backend: str) -> None:
    loaded = kvassay.load(backend)
    assert (loaded.exact, loaded.bound) == (False, 1e-5)
    own = (Probe("wasm", "(instructions|cap that is reached)$"),)
    for probe in PROBES + own * backend.startswith("wasm:"):
        verdict = verdict_of(Target(backend, loaded.variant), probe, preset="fp16")
        assert not verdict.named("reject"), tell(verdict)
        measured = {"parity.relative_error", "correctness.faults", "memory.scratch_growth"}
        measured |= {"wasm.fuel_unsteady"}
        assert measured & set(verdict.named("pass"))
    refused = loaded.supports(
        kvassay.preset("turbo", layers=1, kv_heads=1, query_heads=1, head_dim=64)
    )
    assert not refused
    assert "fp16 only" in refused.reason


def test_a_format_of_its_own_is_sound_and_its_bits_are_right_at_every_head_dim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_codec, "_registered", {})
    name = make_skeleton(tmp_path / "mine", "foreign")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    verdict = verdict_of(
        Target(name, "python"), Probe("foreign", "arithmetic|layer|tiny"), preset="int8"
    )
    assert not verdict.named("reject"), tell(verdict)
    (shapes,) = [o for o in verdict.outcomes if o.rule.name == "foreign.shapes_refused"]
    assert not any("refused" in record.detail for record in shapes.records)
    backend = kvassay.load(name)
    assert isinstance(backend, OwnFormatBackend)
    for d in range(16, 272, 16):
        cache = backend.prepare_own("int8", Spec(layers=1, kv_heads=2, query_heads=2, head_dim=d))
        x = np.ones((3, 2, d), np.float32)
        cache.append(0, x, x)
        assert 8 * cache.stored_bytes == backend.formats["int8"].bits * 2 * x.size
    assert not backend.supports_own(
        "int8", Spec(layers=1, kv_heads=2, query_heads=2, head_dim=64)
    ).reason


def test_the_skeletons_sources_are_short(tmp_path: Path) -> None:
    for kind, limit in (("c", 150), ("cpp", 151), ("python", 150), ("foreign", 110)):
        write_skeleton("mine", kind, tmp_path / kind)
        source = tmp_path / kind / f"mine.{'py' if kind in ('python', 'foreign') else kind}"
        assert len(source.read_text(encoding="utf-8").splitlines()) < limit, kind


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_sound(tmp_path: Path, kind: Kind) -> None:
    written = write_skeleton("mine-two", kind, tmp_path / "x")
    assert len(written) == len(files_of(kind))
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert "{%" not in text
        assert "{{" not in text
        assert text.endswith("\n")
        assert path.name in (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
        if path.suffix == ".py":
            compile(text, str(path), "exec")
        if path.suffix == ".yml":
            steps = yaml.safe_load(text)["jobs"]["gate"]["steps"]
            assert any("kvassay gate" in step.get("run", "") for step in steps)


@pytest.mark.long
def test_its_own_test_passes_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test that comes with it runs the gate, and sees a backend that is off by 1e-4."""
    monkeypatch.setenv("KVASSAY_GATE_ARGS", "--suite parity --jobs 1")
    folder = tmp_path / "mine"
    write_skeleton("mine", "python", folder)

    def outcome() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True)

    good = outcome()
    assert good.returncode == 0, good.stdout + good.stderr
    source = folder / "mine.py"
    text = source.read_text(encoding="utf-8")
    assert "sums / total" in text
    source.write_text(text.replace("sums / total", "sums / (1.0001 * total)"), encoding="utf-8")
    bad = outcome()
    assert bad.returncode == 1
    assert "parity.relative_error" in bad.stdout


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_quick_gate_passes(tmp_path: Path, kind: str) -> None:
    make_skeleton(tmp_path / "mine", kind)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_gate.py"]
    done = subprocess.run(command, cwd=tmp_path / "mine", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Mine", "--kind", "c"), "cannot name a backend"),
        (("mine", "--kind", "rsut"), "did you mean 'rust'"),
        (("native", "--kind", "c"), "exists already"),
        (("mine", "--kind", "c", "--into", "used"), "used is in use"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    assert run(["new-backend", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["used"]
