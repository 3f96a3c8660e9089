"""The browser suite itself: engines, what they lack, and faults it must find."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import kvassay
from kvassay.assets.web import WebAssets, web_assets
from kvassay.errors import StateError, TruncateError, UnavailableError
from kvassay.judging.gate import Question, judge
from kvassay.judging.rules import evaluate, rulebook
from kvassay.protocol import Cache
from kvassay.registry import REFERENCE
from kvassay.running.runner import target_tasks
from kvassay.suite import Request, Target, Task

from ..common.inputs import gaussian
from ..golden.measure import compare
from ..parity.grid import cases, page_cases
from ..parity.scenario import run_case
from ..plugin import check_task
from . import link, measure, sessions, suite, timing
from .engines import ENGINES, PAGE, Engine, candidates, running
from .link import EngineError, EngineFailure, Link
from .remote import RemoteBackend
from .timing import Times, Turn

#: With this set, Chromium and Node must be there; else what is missing is skipped with its reason.
REQUIRED = os.environ.get("KVASSAY_REQUIRE_ENGINES") == "1"
ASSETS = web_assets()["wasm"]
TARGET = Target("wasm", "scalar")


def engine_or_skip(name: str) -> Engine:
    engine = candidates(name, "scalar")[0]
    if engine.reason:
        assert not (REQUIRED and name != "firefox"), engine.reason
        pytest.skip(engine.reason)
    return engine


def test_task(kvassay_task: Task) -> None:
    check_task(kvassay_task)


def test_engines_start_only_in_scope_browser() -> None:
    targets = (TARGET, Target("native", "scalar"))
    labels = [task.label for task in suite.tasks(Request(targets, ("turbo",)))]
    assert labels == ["engines"]
    wide = suite.tasks(Request(targets, ("turbo",), scope="browser"))
    assert {task.target for task in wide} == {None, TARGET}
    assert len(wide) == 7


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_gives_the_bits_of_the_reference(name: str) -> None:
    engine = engine_or_skip(name)
    reference = kvassay.load(REFERENCE)
    with running(engine, ASSETS) as found:
        backend = RemoteBackend(found, name, "scalar")
        for _, _, mismatches, comparisons, first in compare(backend, ["d64", "product", "layers"]):
            assert (mismatches, first) == (0, None)
            assert comparisons > 1000
        for case in (page_cases("quick")[1], cases("quick")[0]):
            result = run_case(backend, reference, case)
            assert (result.mismatches, result.first) == (0, None)
            assert result.comparisons > 1000
        lives = sessions.run(backend, 5)
        assert (lives.growths, lives.mismatches, lives.sessions) == (0, 0, 5)
        assert lives.detail["kept_bytes"] == 0
        step = backend.call("clock")[0]["step"]
        assert 0 < step < 100


def test_errors_of_the_engine_are_those_of_kvassay() -> None:
    spec = kvassay.Spec(1, 1, 1, 64, keys="turbo:4", values="turbo:4", page_tokens=16)
    with running(engine_or_skip("node"), ASSETS) as found:
        backend = RemoteBackend(found, "node", "scalar", memory_limit=2 << 20)
        with backend.prepare(spec) as cache:
            with pytest.raises(StateError):
                cache.attend(0, gaussian(1, 1, 64))
            rows = gaussian(1, 40, 1, 64)
            cache.append(0, rows, rows)
            with pytest.raises(TruncateError) as refused:
                cache.truncate(3)
            assert refused.value.allowed == (0, 16)
            with pytest.raises(EngineFailure):
                found.call("attend", cache=77, layer=0)
            with pytest.raises(kvassay.errors.CacheMemoryError):
                fill(cache, 40)
            assert backend.memory()["bytes"] <= 2 << 20
            cache.attend(0, gaussian(1, 1, 64))
        with pytest.raises(UnavailableError):
            RemoteBackend(found, "node", "relaxed")


def fill(cache: Cache, times: int) -> None:
    rows = gaussian(1, 9000, 1, 64)
    for _ in range(times):
        cache.append(0, rows, rows)


def test_inputs_that_arrive_otherwise_are_refused() -> None:
    with running(engine_or_skip("node"), ASSETS) as found:
        message = link.encode({"command": "features"}, [b"what was sent"])
        assert found.send(message)[0]["features"]
        with pytest.raises(EngineFailure, match="part 0 is not what was sent"):
            found.send(message.replace(b"what", b"that"))


def faulty_host(folder: Path, name: str, before: str, after: str, trusted: bool) -> WebAssets:
    """A copy of the host with one line changed; `trusted` leaves its self-test out."""
    host = folder / "host"
    shutil.copytree(ASSETS.host, host)
    changes = [(name, before, after)]
    if trusted:
        changes.append(("selftest.mjs", "return found === EXPECTED", "return true"))
    for file, old, new in changes:
        path = host / "src" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file}: {old!r}"
        path.write_text(text.replace(old, new))
    return WebAssets(host, ASSETS.folder, ASSETS.variants)


WRONG_BIT = ("cache.mjs", "if (!out) return copy;", "copy[5] += 1e-6; if (!out) return copy;")
LEAK = ("cache.mjs", 'this.library.raw("kv_cache_destroy", this.pointer)', "this.pointer = 0")


def use(monkeypatch: pytest.MonkeyPatch, assets: WebAssets) -> None:
    monkeypatch.setattr(measure, "web_assets", lambda: {"wasm": assets})


def test_a_wrong_output_turns_parity_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_or_skip("node")
    use(monkeypatch, faulty_host(tmp_path, *WRONG_BIT, trusted=True))
    records = measure.measure_parity("wasm", "scalar", "node", "quick", [])
    golden, rest = (r for r in records if r.check == "browser.mismatches")
    assert golden.value > 0
    assert golden.detail["first"]["stage"] in ("scores", "outputs")
    assert rest.value > 0
    assert evaluate(rulebook().rule("browser.mismatches"), records).state == "reject"


def test_a_host_that_fails_its_self_test_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_or_skip("node")
    use(monkeypatch, faulty_host(tmp_path, *WRONG_BIT, trusted=False))
    records = measure.measure_parity("wasm", "scalar", "node", "quick", [])
    assert [r.check for r in records] == ["run.engine"]
    assert "self-test" in records[0].detail["reason"]


def test_sessions_that_leak_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_or_skip("node")
    use(monkeypatch, faulty_host(tmp_path, *LEAK, trusted=True))
    records = measure.measure_sessions("wasm", "scalar", "node", "quick", [])
    growth = next(r for r in records if r.check == "wasm.growth_events")
    assert growth.value > 0
    assert growth.detail["kept_bytes"] > 0
    assert evaluate(rulebook().rule("wasm.growth_events"), records).state == "reject"


def test_without_a_browser_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENGINES:
        monkeypatch.setenv(f"KVASSAY_{name.upper()}", "/no/such/program")
    question = Question("browser", (TARGET,), ("turbo",), ("browser",))
    records = [record for task in target_tasks((TARGET,)) for record in task.run()]
    for group in ("browsers", "node"):
        records += measure.measure_parity("wasm", "scalar", group, "quick", [])
        records += measure.measure_sessions("wasm", "scalar", group, "quick", [])
    said = [str(r.detail["reason"]) for r in records if r.check == "run.engine"]
    assert any("KVASSAY_CHROMIUM=/no/such/program not found" in reason for reason in said)
    assert any("KVASSAY_FIREFOX" in reason for reason in said)
    judgement = judge(records, question)
    assert judgement.exit_status == 2
    states = {o.rule.name: o.state for o in judgement.verdicts[0].outcomes}
    assert states["browser.mismatches"] == states["wasm.growth_events"] == "not measured"


def test_an_engine_that_dies_is_an_error(tmp_path: Path) -> None:
    engine = engine_or_skip("node")
    died = (
        "cache.mjs",
        "const handle = this.#open();\n    if (!Number.isSafeInteger(n)",
        "process.exit(3);\n    if (!Number.isSafeInteger(n)",
    )
    spec = kvassay.Spec(1, 1, 1, 64)
    with running(engine, faulty_host(tmp_path, *died, trusted=False)) as found:
        cache = RemoteBackend(found, "node", "scalar").prepare(spec)
        with pytest.raises(EngineError, match="exit status 3"):
            cache.truncate(0)


def test_samples_too_short_or_too_far_apart_are_no_measurement() -> None:
    steady = [1.0, 1.01, 1.02, 1.03, 1.04]
    assert Times(steady, steady, {}).problem == ""
    assert Times(steady, steady, {}).ratio == 1
    assert "samples are long enough" in Times(steady[:3], steady, {}).problem
    assert "machine busy" in Times([1, 1, 2, 2, 2], steady, {}).problem
    assert "machine busy" in Times(steady, [1, 1, 2, 2, 2], {}).problem


def turns(busy_until: int) -> tuple[Turn, list[int]]:
    """Turns of a machine that is busy until so many were taken, and how many were."""
    taken = [0]

    def turn() -> tuple[dict[str, Any], float]:
        taken[0] += 1
        ms = 9.0 if taken[0] <= busy_until and taken[0] % 2 else 3.0
        return {"ms": ms, "repeats": 3, "steps": 60, "refused": False}, 1e-3

    return turn, taken


def test_noisy_samples_are_taken_again_later_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    quiet, taken = turns(busy_until=0)
    found = timing.steady(quiet, 10, 0.1)
    assert (found.problem, found.ratio, found.detail["given_up"]) == ("", 1.0, [])
    assert (pauses, taken) == ([0.0], [30])
    late, taken = turns(busy_until=31)
    found = timing.steady(late, 10, 0.1)
    assert (found.problem, found.ratio, len(found.engine)) == ("", 1.0, 20)
    assert ["machine busy" in said for said in found.detail["given_up"]] == [True]
    assert pauses[1:] == [0.0, 5.0]
    never, taken = turns(busy_until=10**6)
    found = timing.steady(never, 10, 0.1)
    assert "machine busy" in found.problem
    assert len(found.engine) == 40
    assert pauses[3:] == [0.0, 5.0, 20.0]


def test_a_sample_of_few_steps_is_refused() -> None:
    engine = engine_or_skip("node")
    script = (
        f"import {{ sample }} from {json.dumps((PAGE / 'clock.mjs').as_uri())};"
        "const work = () => { for (let i = 0; i < 1e4; i++) Math.sqrt(i); };"
        "console.log(JSON.stringify([sample(work, 1, 10), sample(work, 1, 60)]));"
    )
    done = subprocess.run(
        [engine.program, "--input-type=module"], input=script, capture_output=True, text=True
    )
    short, long = json.loads(done.stdout)
    assert short["refused"]
    assert short["steps"] < 50
    assert not long["refused"]
    assert long["steps"] >= 50


def test_the_server_gives_its_folders_to_who_knows_the_secret(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "page.html").write_text("hello")
    (tmp_path / "outside.txt").write_text("no")
    with Link({"page": tmp_path / "inside"}) as served:
        base = served.root
        assert urllib.request.urlopen(f"{base}page/page.html").read() == b"hello"
        for path in ("page/../outside.txt", "page/%2e%2e/outside.txt", "page/", "other/page.html"):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"{base}{path}")
        root = base.replace(served.secret, "guess")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{root}page/page.html")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{root}page/next", data=b"")
