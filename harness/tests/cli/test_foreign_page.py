"""docs/foreign.md: the backend with a codec of its own is judged as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest
from judging_tools import tell, verdict_of
from planted.kit import Probe
from test_tutorial import run

from kvassay import vector_codec
from kvassay.suite import Target

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "foreign.md"
TARGET: Final = Target("mine:Mine", "python")


def block(language: str) -> str:
    """The one block of that language."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return str(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(vector_codec, "_registered", {})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(block("python"), encoding="utf-8")
    return tmp_path


def test_it_keeps_the_rules_and_a_slip_breaks_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe("foreign", "arithmetic")
    verdict = verdict_of(TARGET, probe, preset="rounded")
    assert not verdict.named("reject"), tell(verdict)
    assert {"foreign.relative_error", "foreign.stored_bits"} <= set(verdict.named("pass"))
    slip = block("python").replace("p / p.sum(", "p / np.float64(1.001) / p.sum(")
    assert slip != block("python")
    monkeypatch.setattr(vector_codec, "_registered", {})  # the same names again
    (folder / "mine_off.py").write_text(slip, encoding="utf-8")
    verdict = verdict_of(Target("mine_off:Mine", "python"), probe, preset="rounded")
    assert verdict.named("reject") == ("foreign.relative_error",)


@pytest.mark.model
@pytest.mark.long
def test_the_command_as_it_is_written(folder: Path) -> None:
    done = run(block("sh"), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


@pytest.mark.model
@pytest.mark.long
def test_a_gate_in_ci_goes_there_by_itself(folder: Path) -> None:
    """ci/gate.sh as it stands, in a venv that stands for one made from wheels."""
    tools = folder / "tools"
    tools.mkdir()
    fake = tools / "python3.11"
    fake.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"\nprintf "#!/bin/sh\\n" > "$3/bin/pip"\n'
        f'printf \'#!/bin/sh\\nexec {sys.executable} -m kvassay "$@"\\n\' > "$3/bin/kvassay"\n'
        'chmod +x "$3/bin/pip" "$3/bin/kvassay"\n',
        encoding="utf-8",
    )
    fake.chmod(0o755)
    script = PAGE.parents[1] / "ci" / "gate.sh"
    path = f"PATH={tools}:$PATH KVASSAY_OUT=out"
    done = run(f"{path} {script} kvassay -- --backend mine:Mine --depth quick", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS (scope default, only the rules of foreign)" in done.stdout
    assert (folder / "out" / "junit.xml").is_file()
