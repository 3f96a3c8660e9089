"""The workflow files parse, and what their steps run exists and runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CI = ROOT / "ci"
WORKFLOWS = sorted(CI.glob("*.yml"))
SCRIPTS = sorted(CI.glob("*.sh"))


def commands(node: Any) -> Iterator[str]:
    """Every command of a workflow, of either system."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "run":
                yield value
            elif name == "script":
                yield from value
            else:
                yield from commands(value)
    elif isinstance(node, list):
        for item in node:
            yield from commands(item)


def jobs_of(path: Path) -> set[str]:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "jobs" in data:
        return set(data["jobs"])
    return {
        name.removeprefix("kvassay ") for name, job in data.items() if name.startswith("kvassay ")
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_step_is_a_script_that_is_there_and_every_job_is_explained(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = list(commands(yaml.safe_load(text)))
    assert found
    for command in found:
        script = ROOT / shlex.split(command)[0]
        assert script in SCRIPTS
        assert os.access(script, os.X_OK)
    header = text[: re.search(r"^[a-z]", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    explained = set(re.findall(r"^# ([a-z]+)  ", header, re.MULTILINE))
    assert jobs_of(path) <= explained


def test_the_header_is_checked_by_its_jobs(tmp_path: Path) -> None:
    copy = tmp_path / "gitlab.yml"
    text = (CI / "gitlab.yml").read_text(encoding="utf-8")
    copy.write_text(text + "\nkvassay extra:\n  script: [ci/gate.sh x]\n", encoding="utf-8")
    assert "extra" in jobs_of(copy)


@pytest.mark.parametrize("path", [CI / "gitlab.yml", CI / "github-backend.yml"])
def test_a_cheap_gate_runs_first(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "jobs" in data:
        assert all(
            job.get("needs") == "quick" for name, job in data["jobs"].items() if name != "quick"
        )
    else:
        assert data["stages"][0] == data["kvassay quick"]["stage"] == "quick"
    (quick,) = [command for command in commands(data) if "--quick" in command]
    assert "gate.sh" in quick


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound_shell(script: Path) -> None:
    assert run("bash", "-n", str(script)).returncode == 0


@pytest.mark.parametrize("path", [CI / "gitlab.yml", CI / "github-backend.yml"])
def test_every_gate_step_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    for command in commands(yaml.safe_load(path.read_text(encoding="utf-8"))):
        command = re.sub(r"\$\{\{[^}]*\}\}", "scalar", command)
        env = {"KVASSAY_DRY_RUN": "1", "KVASSAY_OUT": str(tmp_path), "KVASSAY_BACKEND": "mine",
               "KVASSAY_VARIANT": "scalar", "KVASSAY_REQUIREMENTS": "kvassay .",
               "KVASSAY_BASELINE": "base.jsonl"}  # fmt: skip
        done = run("bash", "-c", f"cd {shlex.quote(str(ROOT))} && {command}", **env)
        assert done.returncode == 0, done.stderr
        gate = done.stdout.splitlines()[-1]
        assert f"gate --records {tmp_path}/results.jsonl" in gate
        assert "--baseline base.jsonl --backend mine" in gate


def test_a_gate_without_a_requirement_is_refused() -> None:
    done = run(str(CI / "gate.sh"), "--", "--quick")
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_the_summary_reaches_the_page_of_the_run_and_the_status_is_the_gates(
    tmp_path: Path,
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    fake = tools / "python3.11"
    fake.write_text(
        "#!/bin/sh\n"  # stands for python: makes a venv whose kvassay rejects
        'mkdir -p "$3/bin"\n'
        'printf "#!/bin/sh\\nexit 0\\n" > "$3/bin/pip"\n'
        f'summary="{tmp_path}/out/summary.md"\n'
        'printf "#!/bin/sh\\necho REJECT > $summary; exit 1\\n" > "$3/bin/kvassay"\n'
        'chmod +x "$3/bin/pip" "$3/bin/kvassay"\n',
        encoding="utf-8",
    )
    fake.chmod(0o755)
    page = tmp_path / "page.md"
    done = run(
        str(CI / "gate.sh"), "kvassay", PATH=f"{tools}:{os.environ['PATH']}",
        KVASSAY_OUT=str(tmp_path / "out"), GITHUB_STEP_SUMMARY=str(page),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert page.read_text(encoding="utf-8") == "REJECT\n"
