"""The peers session: turns, verification, tables, and what happens to a peer that misbehaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvassay.errors import KvassayError
from kvassay.records import Record, read_records
from kvassay.statistics.noise import ratio

from .__main__ import main
from .cases import CASES, Case, find_cases
from .inputs import Inputs, attend64, logits64, make_inputs
from .protocol import Best, NotMeasured, Sum, need
from .results import Results
from .rounds import take_turns
from .session import NOT_MEASURED, PEERS, TIME, Plan, measure
from .tables import render
from .targets import TARGETS
from .verify import error_of, require_right
from .worker import Worker, load_peer

TINY = Case("tiny", "scores", "a small one", 2, 4, 16, 64)


PLANTED, DYING = (f"{__package__}.planted:{name}" for name in ("planted", "dying"))


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Two cases with planted peers, of which one dies in each."""
    plan = Plan([TINY] * 2, threads=[1], rounds=3, seconds=1e-4, peers=[PLANTED, DYING])
    return list(measure(plan))


def test_only_a_right_result_gets_a_time(records: list[Record]) -> None:
    timed = [record for record in records if record.check == TIME]
    assert [record.variant for record in timed] == ["right"] * 2
    reasons = {r.variant: r.detail["reason"] for r in records if r.check == NOT_MEASURED}
    assert reasons["wrong"].startswith("wrong result: error 1")
    assert reasons["missing"] == "no such package"
    assert reasons["raises"] == "prepare: ValueError: out of luck"
    assert all((record.comparisons == 0) == (record not in timed) for record in records)


def test_a_peer_that_dies_takes_nobody_along_and_is_tried_again(records: list[Record]) -> None:
    reasons = [record.detail["reason"] for record in records if record.backend == "dying"]
    assert reasons == ["prepare: the process died, exit code 3"] * 2


def test_records_hold_what_tables_need(records: list[Record]) -> None:
    record = next(record for record in records if record.check == TIME)
    assert record.value > 0
    assert record.comparisons >= 3
    assert len(record.detail["rounds_ns"]) == 3
    assert record.detail["base"]
    assert record.detail["version"] == "planted 1"
    again = Record.from_json(record.to_json())
    assert render([again]) == render([record])


def test_processor_time_is_for_one_thread() -> None:
    with pytest.raises(KvassayError, match="several threads"):
        list(measure(Plan([TINY], threads=[1, 2], clock="cpu", peers=[PLANTED])))


def test_no_more_threads_than_cores() -> None:
    with pytest.raises(KvassayError, match="need as many cores"):
        Worker(PLANTED, 10_000)


def test_what_is_no_peer_is_refused() -> None:
    with pytest.raises(KvassayError, match="is no Peer"):
        load_peer(f"{__package__}.cases:CASES")


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(NotMeasured, match="no-such-package is not installed"):
        need("no-such-package", "no_such_module_at_all")


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_loads_without_its_package(name: str) -> None:
    peer = load_peer(PEERS[name])
    offered = {case.name: peer.types(case) for case in CASES.values()}
    assert any(offered.values())
    assert all(0 <= tolerance <= 0.5 for types in offered.values() for tolerance in types.values())


def test_inputs_are_exact_in_fp16_and_the_same_again(tmp_path: Path) -> None:
    inputs = make_inputs(CASES["decode-64-2048"])
    for array in (inputs.q, inputs.keys, inputs.values):
        assert np.array_equal(array, array.astype(np.float16).astype(np.float32))
    inputs.save(tmp_path)
    for name, array in vars(Inputs.load(tmp_path)).items():
        assert np.array_equal(array, getattr(inputs, name))


def test_expected_attention_is_causal_and_grouped() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((2, 4, 16), (5, 2, 16), (5, 2, 16))
    )
    out = attend64(q, k, v)
    for query, seen in ((0, 4), (1, 5)):
        for head in range(4):
            logits = k[:seen, head // 2].astype(np.float64) @ q[query, head] / 4
            weights = np.exp(logits) / np.exp(logits).sum()
            np.testing.assert_allclose(out[query, head], weights @ v[:seen, head // 2], rtol=1e-12)
    np.testing.assert_allclose(logits64(q[0], k)[3], k[:, 1].astype(np.float64) @ q[0, 3])


WRONG: dict[str, Callable[[Inputs], Any]] = {
    "logits twice too large": lambda i: attend64(2 * i.q, i.keys, i.values),
    "output scaled by 0.4": lambda i: 0.4 * i.expected,
    "half of the tokens": lambda i: attend64(i.q, i.keys[::2], i.values[::2]),
    "heads in another order": lambda i: i.expected[:, ::-1],
    "NaN": lambda i: np.where(np.arange(64) == 3, np.nan, i.expected),
    "zeros": lambda i: np.zeros_like(i.expected),
    "another shape": lambda i: i.expected[0],
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_attention_is_refused_at_the_widest_tolerance(fault: str) -> None:
    inputs = make_inputs(CASES["decode-64-2048"])
    with pytest.raises(NotMeasured, match="wrong result"):
        require_right(WRONG[fault](inputs).astype(np.float32), inputs.expected, 0.5)


def test_right_attention_passes_the_narrowest_tolerance() -> None:
    inputs = make_inputs(CASES["decode-64-2048"])
    assert require_right(inputs.expected.astype(np.float32), inputs.expected, 1e-5) < 1e-6


def best_of(scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], ids: list[int]) -> Best:
    return Best(np.array(ids), scores[ids].astype(np.float32))


def test_a_search_is_held_to_its_scores_and_to_what_it_missed() -> None:
    scores = np.arange(100.0)
    assert error_of(best_of(scores, [99, 98, 97]), scores) < 1e-6
    assert error_of(best_of(scores, [2, 1, 0]), scores) > 0.9
    assert error_of(Best(np.array([99, 98]), np.array([9.9, 9.8], np.float32)), scores) > 0.8
    for ids in ([99, 99], [-1, 99], [100, 99], []):
        wrong = Best(np.array(ids, np.int64), np.ones(len(ids), np.float32))
        assert error_of(wrong, scores) == np.inf


def test_a_sum_is_right_or_wrong() -> None:
    assert error_of(Sum(3, 3), np.zeros(1)) == 0
    assert error_of(Sum(3, 4), np.zeros(1)) == np.inf


def test_everybody_runs_once_a_round_in_changing_order() -> None:
    order: list[str] = []

    def turn(name: str, ns: int) -> list[int]:
        order.append(name)
        return [ns, 3 * ns, 2 * ns]

    turns = {name: (lambda name=name, ns=ns: turn(name, ns)) for name, ns in (("a", 1), ("b", 5))}
    series = take_turns(turns, 8, pause=0)
    assert series["a"].rounds == [2] * 8
    assert series["b"].rounds == [10] * 8
    assert series["b"].runs == 24
    rounds = ["".join(order[i : i + 2]) for i in range(0, 16, 2)]
    assert set(rounds) == {"ab", "ba"}


def test_one_who_fails_in_the_middle_drops_out_alone() -> None:
    calls = iter(range(10))

    def failing() -> list[int]:
        if next(calls) == 1:
            raise NotMeasured("gone")
        return [1]

    series = take_turns({"a": failing, "b": lambda: [1]}, 4, pause=0)
    assert series["a"].lost == "gone"
    assert len(series["a"].rounds) == 1
    assert len(series["b"].rounds) == 4


def test_ratio_is_of_rounds_and_its_interval_of_order_statistics() -> None:
    base = [1.0, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0]
    times = [factor * b for factor, b in zip(range(1, 12), base, strict=True)]
    found = ratio(times, base)
    assert (found.median, found.low, found.high) == (6, 2, 10)
    assert found.confidence == pytest.approx(1 - 2 * 12 / 2**11)
    assert ratio([2.0, 4.0, 6.0], [1.0, 1.0, 1.0]).confidence == pytest.approx(0.75)


def record(
    peer: str, type_: str, times: list[float], case: str = "decode-128-4096", threads: int = 1,
    base: bool = False, run: str = "r",
) -> Record:  # fmt: skip
    detail = {
        "case": case,
        "threads": threads,
        "run": run,
        "rounds_ns": times,
        "role": "ours" if peer == "kvassay" else "peer",
        "base": base,
        "clock": "wall",
        "error": 0.0,
        "tolerance": 1.0,
        "bytes": 1000,
        "version": "",
    }
    return Record(
        "peers", TIME, "", peer, type_, float(np.median(times)), "ns", len(times), detail=detail
    )


def ours(times: list[float], **other: object) -> Record:
    return record("kvassay", "turbo avx2", times, base=True, **other)  # type: ignore[arg-type]


def verdicts(records: list[Record]) -> dict[str, str]:
    rows = [line for line in render(records).splitlines() if line.count("|") == 7]
    return {cells[1].strip(): cells[6].strip() for row in rows if (cells := row.split("|"))}


def test_a_target_stands_on_the_fastest_peer_and_on_one_run() -> None:
    what = "decode-128-4096, threads 1: times the fastest peer"
    slow, fast = record("llama.cpp", "q4_0", [900.0] * 7), record("torch SDPA", "f32", [59.0] * 7)
    assert verdicts([ours([10.0] * 7), slow])[what] == "reached"
    assert verdicts([ours([10.0] * 7), slow, fast])[what] == "**not reached**"
    other_run = record("torch SDPA", "f32", [900.0] * 7, run="s")
    text = render([other_run, ours([10.0] * 7)])
    assert "Targets not measured" in text
    assert what in text.partition("Targets not measured")[2]


def test_wide_vectors_owe_all_and_narrow_ones_half() -> None:
    target = next(
        t for t in TARGETS if t.what == "decode-128-4096, threads 1: times llama.cpp q4_0"
    )
    assert (target.owed("avx512vnni"), target.owed("avx2")) == (35, 17.5)
    assert target.reached(20, "avx2")
    assert not target.reached(20, "avx512")
    append = next(t for t in TARGETS if t.at_most)
    assert append.reached(append.needed - 1, "avx2")
    assert not append.reached(append.needed + 1, "avx2")


def test_a_later_run_of_a_case_replaces_the_earlier() -> None:
    results = Results([ours([10.0], run="old"), ours([20.0], run="new")])
    assert [figure.ns for figure in results] == [20]


def test_two_threads_are_compared_round_by_round() -> None:
    what = "decode-128-4096: two threads over one"
    assert verdicts([ours([20.0] * 7), ours([10.0] * 7, threads=2)])[what] == "reached"
    assert verdicts([ours([17.0] * 7), ours([10.0] * 7, threads=2)])[what] == "**not reached**"


def test_tables_name_who_was_not_measured() -> None:
    missing = Record(
        "peers", NOT_MEASURED, "", "turbovec", "4 bits", 0.0, "ns", 0,
        detail={"case": "scan-l3", "threads": 1, "run": "r", "reason": "is not installed"},
    )  # fmt: skip
    text = render([ours([1.0]), missing])
    assert "- turbovec 4 bits, scan-l3, threads 1: not measured: is not installed" in text


def test_without_a_measured_peer_the_run_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(ours([1.0] * 7).to_json() + "\n")
    assert main(["--from", str(path)]) == 1
    assert "no peer was measured" in capsys.readouterr().err
    path.write_text(path.read_text() + record("torch SDPA", "f32", [2.0] * 7).to_json() + "\n")
    assert main(["--from", str(path)]) == 0
    assert "| torch SDPA f32 | 0.002 | 2.00 [2.00, 2.00] |" in capsys.readouterr().out


def test_our_other_types_are_no_peers(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    other = record("kvassay", "turbo scalar", [3.0] * 7)
    path.write_text(ours([1.0] * 7).to_json() + "\n" + other.to_json() + "\n")
    assert main(["--from", str(path)]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--case", "decode-128-4097"], "did you mean"),
        (["--peer", "vllm"], "no peer 'vllm'"),
        (["--rounds", "0"], "--rounds: must be positive"),
        (["--from", "no-such-file"], "no-such-file"),
    ],
)
def test_bad_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_the_old_name_of_an_option_says_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--json", "a.jsonl"])
    assert stopped.value.code == 2
    assert "no option --json: it is --records FILE now" in capsys.readouterr().err


def test_numpy_is_measured_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "records.jsonl"
    arguments = ["--case", "scores", "--threads", "1", "--rounds", "1", "--seconds", "1e-4"]
    peers = ["--peer", "turbovec", "--peer", "numpy_fp32"]
    assert main([*arguments, *peers, "--records", str(path)]) == 0
    (figure,) = [r for r in read_records(path) if r.check == TIME]
    assert figure.backend == "numpy"
    assert json.loads(path.read_text().splitlines()[0])["check"] == "run.machine"
    assert "| numpy f32 |" in capsys.readouterr().out


def test_cases_are_found_by_name() -> None:
    assert [case.name for case in find_cases([])] == list(CASES)
    assert find_cases(["append"]) == [CASES["append"]]
