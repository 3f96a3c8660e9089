"""The command line: exit status, one-line errors, files written, figures printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import PRESET, TARGET, FakeSuite, good_records, make, question, task

from kvassay import registry
from kvassay.cli import run
from kvassay.cli.parts import measuring, selecting
from kvassay.cli.plan import parse_size, size
from kvassay.errors import InputError
from kvassay.presets import PRESETS
from kvassay.protocol import Availability
from kvassay.records import Record, read_records
from kvassay.running import targets
from kvassay.running.runner import Summary
from kvassay.suite import Request, Target, Task, get_suite

Capture = pytest.CaptureFixture[str]
SHAPE = ("--layers", "30", "--kv-heads", "8", "--head-dim", "128")


class Provider:
    """Stands for a provider whose variants are given."""

    name = "stand-in"
    foreign = False
    on_request = False

    def __init__(self, **variants: Availability) -> None:
        self._variants = variants

    def variants(self) -> dict[str, Availability]:
        return self._variants


READY = Availability("ready")
OLD = Availability("unsupported-cpu", "needs AVX-512")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Provider]:
    """Two backends with known variants, and an empty folder to write in."""
    known = {
        "native": Provider(scalar=READY, avx512=OLD),
        "reference": Provider(scalar=READY),
        "absent": Provider(wasm=Availability("missing-package", "pip install wasmtime")),
    }
    monkeypatch.setattr(targets, "providers", lambda: known)
    original = registry.provider
    for module in (selecting, targets):
        monkeypatch.setattr(module, "provider", lambda name: known.get(name) or original(name))
    monkeypatch.chdir(tmp_path)
    return known


def use(monkeypatch: pytest.MonkeyPatch, *suites: FakeSuite) -> None:
    monkeypatch.setattr(selecting, "suites", lambda: {suite.name: suite for suite in suites})


def suites_of(records: list[Record]) -> list[FakeSuite]:
    """One suite a check's first part, with one task that returns its records."""
    names = sorted({r.suite for r in records} - {"run"})
    return [
        FakeSuite(name, [_task(name, [r for r in records if r.suite == name])]) for name in names
    ]


def _task(suite: str, records: list[Record]) -> Task:
    plain = task("measure", records=records)
    return Task(suite, plain.label, plain.function, plain.arguments, TARGET, PRESET, "math")


ASKED = ("--backend", "reference", "--preset", PRESET, "--jobs", "1")


def test_a_gate_that_passes_writes_results_and_report(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    suites = suites_of(good_records())
    use(monkeypatch, *suites)
    assert run(["gate", *ASKED, "--quick"]) == 0
    out = capsys.readouterr().out
    assert "PASS (scope default): 1 PASS" in out
    assert "reference/scalar  turbo" in out
    assert "tiny transformer" in out
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out
    request = suites[0].request
    assert request == Request((TARGET,), (PRESET,), "quick", "default", "smollm2-135m")
    checks = [record.check for record in read_records("results.jsonl")]
    assert checks[:2] == ["run.request", "run.machine"]
    assert {"run.availability", "run.target", "run.errors", "parity.mismatches"} <= set(checks)
    assert "<h1>PASS</h1>" in Path("report.html").read_text(encoding="utf-8")


def test_a_gate_that_rejects_says_by_which_rule_and_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    bad = make("parity.mismatches", 7.0, subject="turbo:3 d64", reproduce="kvassay parity --x")
    use(monkeypatch, *suites_of([*good_records(), bad]))
    assert run(["gate", *ASKED, "--records", "r.jsonl", "--report", "r.html", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "parity.mismatches sum <= 0 values: Same bits as the reference" in captured.out
    assert "reference/scalar turbo turbo:3 d64: 7 u, n = 10" in captured.out
    assert "again: kvassay parity --x" in captured.out
    assert Path("r.html").exists()
    assert not Path("results.jsonl").exists()
    assert run(["gate", "--from", "r.jsonl"]) == 1


def test_a_rule_without_records_gives_two(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    missing = ("memory.peak_ratio", "parity.mismatches")
    use(monkeypatch, *suites_of([r for r in good_records() if r.check not in missing]))
    assert run(["gate", *ASKED, "-q"]) == 2
    out = capsys.readouterr().out
    assert "memory.peak_ratio?" in out
    assert "parity.mismatches?" in out
    assert "NOT MEASURED" in out


def test_a_crashing_task_rejects(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    use(monkeypatch, *suites_of(good_records()), FakeSuite("quality", [task("abort")]))
    assert run(["gate", *ASKED]) == 1
    captured = capsys.readouterr()
    assert "crashed (signal 6, SIGABRT)" in captured.err
    assert "run.errors sum <= 0 tasks" in captured.out


def test_a_suite_without_tasks_and_no_suite_at_all_give_two(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, FakeSuite("parity", []))
    assert refused(capsys, "gate", *ASKED) == (
        "suite 'parity' has no task for this request; widen backends or presets"
    )
    use(monkeypatch)
    assert "no suite is installed" in refused(capsys, "gate", *ASKED)


def test_a_suite_alone_is_judged_by_its_rules(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    suites = suites_of(good_records())
    use(monkeypatch, *suites)
    assert run(["parity", *ASKED, "--records", "p.jsonl"]) == 0
    assert "PASS (scope default, only the rules of parity)" in capsys.readouterr().out
    asked = {suite.name: suite.request for suite in suites if suite.request}
    assert list(asked) == ["parity"]
    assert asked["parity"].depth == "full"
    assert not Path("report.html").exists()
    assert run(["gate", "--from", "p.jsonl"]) == 0
    assert run(["gate", "--from", "p.jsonl", "--scope", "full"]) == 0
    assert run(["parity", *ASKED, "--quick"]) == 0
    assert [s.request.depth for s in suites if s.name == "parity" and s.request] == ["quick"]
    assert run(["parity", *ASKED, "--quick", "--depth", "full"]) == 2
    assert "--quick and --depth contradict each other" in capsys.readouterr().err


def test_a_wider_scope_over_old_records_needs_more(tmp_path: Path) -> None:
    path = write(tmp_path, [make("run.request", 1, detail=question().to_detail()), *good_records()])
    assert run(["gate", "--from", path]) == 0
    assert run(["gate", "--from", path, "--scope", "full"]) == 2


def test_scope_full_measures_in_full_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    suites = suites_of(good_records(scope="full"))
    use(monkeypatch, *suites)
    assert run(["gate", *ASKED, "--scope", "full", "-q"]) == 0
    request = suites[0].request
    assert request is not None
    assert (request.scope, request.depth) == ("full", "full")


def test_a_suite_of_another_scope_runs_there_and_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*arguments: str) -> list[str]:
        timing = FakeSuite("performance", [task("measure", records=[])])
        vars(timing)["scope"] = "full"
        suites = [*suites_of(good_records()), timing]
        use(monkeypatch, *suites)
        run([*arguments, *ASKED, "-q"])
        return [suite.name for suite in suites if suite.request]

    assert "performance" not in asked("gate")
    assert "performance" not in asked("gate", "--scope", "browser")
    assert {"performance", "parity"} <= set(asked("gate", "--scope", "full"))
    assert asked("gate", "--suite", "performance") == ["performance"]
    assert asked("performance") == ["performance"]


def test_by_default_every_variant_that_runs_is_judged_with_every_preset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suite = FakeSuite("parity", [task("measure", records=[make("parity.mismatches", 0.0)])])
    use(monkeypatch, suite)
    monkeypatch.setattr(measuring, "target_tasks", lambda targets: [])
    assert run(["gate", "-q", "--jobs", "1"]) == 2
    assert suite.request is not None
    assert suite.request.targets == (Target("native", "scalar"), Target("reference", "scalar"))
    assert suite.request.presets == ("fp16", "turbo", "turbo-qjl", "kivi")


def test_an_interrupted_gate_says_what_it_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, *suites_of(good_records()))
    monkeypatch.setattr(measuring, "run", lambda *_, **__: Summary(9, done=3, interrupted=True))
    message = refused(capsys, "gate", *ASKED, "-q")
    assert message.startswith("interrupted: 3 of 9 tasks ended; results.jsonl holds what")
    assert list(read_records("results.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gate", "--backend", "nativ"], "no backend 'nativ'; did you mean 'native'?"),
        (["gate", "--backend", "no.such:Thing"], "cannot import backend 'no.such:Thing'"),
        (["gate", "--variant", "scalr"], "did you mean 'scalar'?"),
        (["gate", "--variant", "avx512"], "avx512: unsupported-cpu, needs AVX-512"),
        (["gate", "--backend", "absent"], "wasm: missing-package, pip install wasmtime"),
        (["gate", "--preset", "turbo-qj"], "no preset 'turbo-qj'; did you mean 'turbo-qjl'?"),
        (["gate", "--suite", "parit"], "no suite 'parit'; did you mean 'parity'?"),
        (["gate", "--scope", "ful"], "'ful' is not one of"),
        (["gate", "--quick", "--depth", "full"], "contradict"),
        (["gate", "--from", "no.jsonl"], "no.jsonl: No such file or directory"),
        (["gate", "--from", "x", "--quick"], "give only --scope, --baseline"),
        (["gate", "--jobs", "0"], "--jobs"),
        (["parity", "--nonsense"], "No such option"),
        (["gaet"], "No such command"),
        (["explain", "parity.mismatch"], "did you mean 'parity.mismatches'?"),
        (["explain"], "Missing argument"),
        (["plan"], "--layers, --kv-heads, --head-dim"),
        (["plan", *SHAPE, "--budget", "1 apple"], "budget: '1 apple' is no size"),
        (["plan", *SHAPE, "--keys", "turbo:3.7"], "no codec 'turbo:3.7'"),
        (["plan", *SHAPE[:4], "--head-dim", "100"], "not a multiple of 16"),
        (["plan", *SHAPE, "--preset", "turbi"], "did you mean 'turbo'?"),
        (["plan", "--model", "nothing.gguf"], "neither a file nor a known model"),
        (["run", "synthetic:measure", "{"], "arguments: not JSON"),
        (["run", "synthetic:measure", "3"], "arguments: not a JSON object"),
        (["run", "synthetic:unheard"], "no task 'synthetic:unheard'"),
        (["gate", "--preset", "fp16", "--preset", "kivi"], "only baselines and controls"),
        (["gate", "--model", "nothing.gguf"], "neither a file nor a known model"),
    ],
)
def test_bad_usage_is_one_line_and_two(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: list[str], message: str
) -> None:
    use(monkeypatch, FakeSuite("parity", [task("nothing")]))
    if "absent" not in arguments:
        monkeypatch.setattr(
            targets, "providers", lambda: {"native": Provider(scalar=READY, avx512=OLD)}
        )
    assert message in refused(capsys, *arguments)


def test_a_task_is_run_again_by_its_label(capsys: Capture) -> None:
    where = ("--depth", "quick", "--backend", "reference", "--variant", "scalar")
    request = Request((Target("reference", "scalar"),), ("turbo",), depth="quick")
    label = get_suite("parity").tasks(request)[0].label
    assert run(["run", "parity", label, *where]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["subject"] == label
    assert "did you mean" in refused(capsys, "run", "parity", label[:-1], *where)


def test_no_command_is_bad_usage_and_shows_the_commands(capsys: Capture) -> None:
    assert run([]) == 2
    assert re.search(r"^  gate +Judge", capsys.readouterr().out, re.MULTILINE)


def refused(capsys: Capture, *arguments: str) -> str:
    """The single error line of a command that is refused with exit status 2."""
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in captured.err
    return lines[0].removeprefix("error: ")


def test_verbose_shows_the_traceback(capsys: Capture) -> None:
    assert run(["explain", "nope", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_errors_alike_are_told_once(tmp_path: Path, capsys: Capture) -> None:
    errors = [
        make("run.errors", 1.0, subject=f"task {n}", detail={"error": "not built"})
        for n in range(9)
    ]
    assert run(["gate", "--from", write(tmp_path, [*good_records(), *errors])]) == 1
    out = capsys.readouterr().out
    assert "task 0: not built (and 8 more like it)" in out
    assert "task 1" not in out


def test_damaged_records_are_named_by_line(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, good_records())
    with open(path, "a", encoding="utf-8") as stream:
        stream.write('{"schema": 1\n')
    assert f"{path}:{len(good_records()) + 1}: not JSON" in refused(capsys, "gate", "--from", path)


def test_judging_no_records_gives_two_and_says_so(tmp_path: Path, capsys: Capture) -> None:
    assert "nothing was measured" in refused(capsys, "gate", "--from", write(tmp_path, []))


def test_explain_prints_the_rule(capsys: Capture) -> None:
    assert run(["explain", "correctness.distortion_ratio"]) == 0
    out = capsys.readouterr().out
    for text in ("each 0.9..1.1 of theory", "Lloyd-Max", "(set 2026-11-29)", "changes it"):
        assert text in out


def test_explain_shows_evidence_and_what_would_change_it(tmp_path: Path, capsys: Capture) -> None:
    bad = make("correctness.distortion_ratio", 0.5, subject="turbo:3 d64", reproduce="again so")
    path = write(tmp_path, [*good_records(), bad])
    assert run(["explain", "correctness.distortion_ratio", "--from", path]) == 0
    out = capsys.readouterr().out
    assert "reference/scalar turbo: reject, each 0.5 of theory from 2 records" in out
    assert "passes when each 0.9..1.1 of theory (1 of the records is beyond it)" in out
    assert out.index("turbo:3 d64: 0.5 u") < out.index("1 u, n = 10")
    assert "again: again so" in out
    assert run(["explain", "browser.mismatches", "--from", path]) == 0
    assert "outside scope (not measured in scope browser)" in capsys.readouterr().out


def test_list_shows_backends_presets_suites(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, FakeSuite("memory", []))
    states = {"native": {"scalar": READY, "avx512": OLD}}
    monkeypatch.setattr(registry, "backends", lambda: states)
    assert run(["list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"native +scalar +ready", out)
    assert re.search(r"native +avx512 +unsupported-cpu +needs AVX-512", out)
    assert re.search(r"turbo-qjl +experiment", out)
    assert re.search(r"memory +memory.unbilled_bytes", out)


def test_run_prints_the_records_of_one_task(capsys: Capture) -> None:
    assert run(["run", "synthetic:sleep", '{"seconds": 0}']) == 0
    assert Record.from_json(capsys.readouterr().out).check == "quality.slept"


def test_plan_reproduces_the_worked_example(capsys: Capture) -> None:
    assert run(["plan", *SHAPE, "--preset", "fp16", "--tokens", "32768", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["bytes_held_fp16"] == 3840 * 2**20
    options = ("--sinks", "0", "--window", "128", "--value-centre", "none")
    assert run(["plan", *SHAPE, *options, "--tokens", "32768", "--json"]) == 0
    turbo = json.loads(capsys.readouterr().out)
    assert turbo["compression_code_bits"] == pytest.approx(4.92, abs=5e-3)
    parts = turbo["bytes_by_part"]
    assert (parts["codes"] + parts["residual"]) / 2**20 == pytest.approx(792, abs=3)
    assert turbo["transform_ratio_padded"] == 16
    assert turbo["bytes_held"] == sum(parts.values())
    assert turbo["bytes_saved_a_step"] == plain["bytes_held_fp16"] - turbo["bytes_held"]


def test_plan_for_people(capsys: Capture) -> None:
    arguments = ["plan", *SHAPE, "--span", "4096", "--budget", "8GiB", "--bandwidth", "10"]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "30 layers, 8 KV heads, head dim 128: keys turbo:3.5, values turbo:3" in out
    assert re.search(r"longest context in 8,192.0 MiB +unlimited +unlimited", out)
    assert re.search(r"next power of two +1,024 \(16.0 x less\)", out)
    assert max(map(len, out.splitlines())) <= 100


def test_an_fp16_stream_drops_the_centring_of_the_preset(capsys: Capture) -> None:
    assert run(["plan", *SHAPE, "--keys", "fp16", "--json"]) == 0
    spec = json.loads(capsys.readouterr().out)["spec"]
    assert (spec["keys"], spec["key_centre"], spec["values"]) == ("fp16", "none", "turbo:3")


@pytest.mark.model
def test_plan_takes_the_shape_of_a_model(capsys: Capture) -> None:
    assert run(["plan", "--model", "smollm2-135m", "--json"]) == 0
    spec = json.loads(capsys.readouterr().out)["spec"]
    shape = [spec[name] for name in ("layers", "kv_heads", "query_heads", "head_dim")]
    assert shape == [30, 3, 9, 64]


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 * 2**20), ("2 gb", 2 * 10**9), ("1.5KiB", 1536), ("1000", 1000), ("7B", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-5", "1e9", "3 furlongs"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_size(text)


def test_sizes_for_people() -> None:
    assert [size(n) for n in (5, 2048, 3 * 2**30, 2**40, -2048)] == [
        "5 B",
        "2.0 KiB",
        "3,072.0 MiB",
        "1,024.0 GiB",
        "-2.0 KiB",
    ]


def test_the_installed_script_answers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from kvassay.cli import main; main()", "explain", "nope"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: no rule 'nope'")


def write(folder: Path, records: list[Record]) -> str:
    path = folder / "records.jsonl"
    path.write_text("".join(record.to_json() + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_quick_takes_the_best_variant_unless_one_is_named(installed: dict[str, Provider]) -> None:
    installed.clear()
    installed["three"] = Provider(wide=OLD, good=READY, plain=READY)
    good, plain = Target("three", "good"), Target("three", "plain")
    assert targets.choose_targets([], []) == (good, plain)
    assert targets.choose_targets([], [], best_only=True) == (good,)
    assert targets.choose_targets([], ["plain"], best_only=True) == (plain,)


def test_a_backend_on_request_is_judged_where_it_is_named(installed: dict[str, Provider]) -> None:
    installed.clear()
    installed["usual"], installed["asked"] = Provider(plain=READY), Provider(plain=READY)
    installed["asked"].on_request = True
    assert targets.choose_targets([], []) == (Target("usual", "plain"),)
    assert targets.choose_targets(["asked"], []) == (Target("asked", "plain"),)


def test_quick_without_names_asks_for_what_a_verdict_is_about() -> None:
    one, reference = Target("native", "scalar"), Target("reference", "scalar")
    assert selecting.without_reference((one, reference)) == (one,)
    assert selecting.without_reference((reference,)) == (reference,)
    assert selecting.product_presets() == ("turbo",)
    assert selecting.choose_presets([]) == tuple(PRESETS)


def test_version_is_the_packages(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert re.fullmatch(r"kvassay \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)
