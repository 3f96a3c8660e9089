"""Parity held to itself: what it compares is left out, piece by piece, and a planted fault that it
found is then found no more. A comparison without such a fault would be one that nobody misses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest

import kvassay
from kvassay.errors import SpanError, TruncateError
from kvassay.protocol import Backend, FloatArray
from kvassay.registry import REFERENCE
from kvassay.running import shared
from kvassay.suite import Request, Target

from ..common.specs import make_spec
from ..golden.cases import CASES as GOLDEN
from . import _target_tasks
from . import suite as parity
from .grid import case_of, cases, page_cases, preset_cases
from .measure import measure
from .scenario import Result, Run, run_case
from .truth import Truth

#: What a call gave, or the error that it raised, is handed to a fault with the call's name and
#: arguments; what the fault returns, or raises, is what parity sees.
Fault = Callable[["WrongCache", str, tuple[Any, ...], Any], Any]


class WrongCache:
    """The reference's cache behind a fault; `state` is what the fault keeps."""

    def __init__(self, inner: Any, fault: Fault, **state: Any) -> None:
        self.inner, self.fault, self.state = inner, fault, state

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not callable(method):
            return method

        def call(*arguments: Any) -> Any:
            try:
                found = method(*arguments)
            except (TruncateError, SpanError) as error:
                found = error
            if name == "fork":
                found = WrongCache(found, self.fault, **self.state)
            found = self.fault(self, name, arguments, found)
            if isinstance(found, Exception):
                raise found
            return found

        return call


class Wrong:
    """The reference as an exact backend, with a fault."""

    exact = True

    def __init__(self, fault: Fault) -> None:
        self.fault, self.inner = fault, kvassay.load(REFERENCE)

    def prepare(self, spec: kvassay.Spec, threads: int) -> WrongCache:
        return WrongCache(self.inner.prepare(spec), self.fault, threads=threads)

    def restore(self, spec: kvassay.Spec, data: bytes, threads: int) -> WrongCache:
        return WrongCache(
            self.inner.restore(spec, data), self.fault, threads=threads, restored=True
        )


def _bit(found: FloatArray) -> FloatArray:
    """The last value with its lowest bit turned."""
    wrong = np.array(found)
    wrong.view(np.uint32).reshape(-1)[-1] ^= 1
    return wrong


def _byte(found: bytes) -> bytes:
    return found[:-1] + bytes([found[-1] ^ 1])


def none(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return found


def scores(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return _bit(found) if name == "scores" else found


def minus_zero(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return np.where(found == 0, -found, found) if name == "scores" else found


def one_query(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    wrong = name == "attend" and given[1].ndim == 2 and not isinstance(found, Exception)
    return _bit(found) if wrong else found


def many_queries(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    wrong = name == "attend" and given[1].ndim == 3 and not isinstance(found, Exception)
    return _bit(found) if wrong else found


def second_layer(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return _bit(found) if name == "scores" and given[0] == 1 else found


def threads(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return _bit(found) if name == "scores" and cache.state["threads"] > 1 else found


def pages(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return [*found[:-1], _byte(found[-1])] if name == "pages" and found else found


def page_less(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return found[:-1] if name == "pages" else found


def dump(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return _byte(found) if name == "dump" else found


def parent(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    if name == "fork":
        cache.state["forked"] = True
    return _byte(found) if name == "dump" and cache.state.get("forked") else found


def same_fork(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return cache if name == "fork" else found


def after_reset(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    if name == "reset":
        cache.state["reset"] = True
    return _byte(found) if name == "dump" and cache.state.get("reset") else found


def other_error(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return SpanError("no") if isinstance(found, TruncateError) else found


def refused_and_changed(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    if name == "dump" and cache.state.pop("refused", False):
        return _byte(found)
    if name == "truncate" and isinstance(found, Exception):
        cache.state["refused"] = True
    return found


def restored(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return _byte(found) if name == "dump" and cache.state.pop("restored", False) else found


def span(cache: WrongCache, name: str, given: tuple[Any, ...], found: Any) -> Any:
    return np.zeros_like(given[1]) if isinstance(found, SpanError) else found


def _case(plan: str, inputs: str = "mixed", **fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        **{"layers": 2, "kv_heads": 1, "query_heads": 2, "head_dim": 16, "keys": "turbo:3"},
        **{"values": "turbo:2", "page_tokens": 16, "window": 5, "sinks": 2},
    }
    return case_of(make_spec(**{**plain, **fields}), inputs, 2, plan, 3)


READ, LIFE, CROSS = (_case(plan) for plan in ("one append", "lifecycle", "cross read"))
ZEROS = _case("one append", "constants", keys="fp16", values="fp16")
SPAN = _case("singles", span=9, sinks=0, window=0)
#: Every planted fault and a case that finds it.
FAULTS: Final[Mapping[str, tuple[Fault, dict[str, Any]]]] = {
    "scores": (scores, READ),
    "minus zero": (minus_zero, ZEROS),
    "one query": (one_query, READ),
    "many queries": (many_queries, READ),
    "second layer": (second_layer, READ),
    "threads": (threads, READ),
    "pages": (pages, READ),
    "page less": (page_less, READ),
    "dump": (dump, READ),
    "parent": (parent, LIFE),
    "same fork": (same_fork, LIFE),
    "after reset": (after_reset, LIFE),
    "other error": (other_error, LIFE),
    "refused and changed": (refused_and_changed, LIFE),
    "restored": (restored, CROSS),
    "span": (span, SPAN),
}


def found(fault: Fault, case: dict[str, Any]) -> int:
    """Values that parity says differ."""
    wrong = cast(Backend, Wrong(fault))
    return run_case(wrong, kvassay.load(REFERENCE), case).mismatches


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_and_its_case_is_right_without_it(name: str) -> None:
    fault, case = FAULTS[name]
    assert found(fault, case) > 0
    assert found(none, case) == 0


# --- mutations: what is left out of the suite ----------------------------------------------------


def _nothing(*_: Any, **__: Any) -> None:
    """In place of a comparison."""


def _taken_as_right(word: str) -> Callable[..., Any]:
    """What a target gave under names with this word is taken for the reference's value."""
    plain = Truth.value

    def value(self: Truth, what: str, found: Any, compute: Any) -> Any:
        return found if word in what else plain(self, what, found, compute)

    return value


def _with_counts(keep: Callable[[int], bool]) -> Callable[..., None]:
    plain = Run.do_check
    return lambda self, counts: plain(self, [n for n in counts if keep(n)])


def _without_notes(stage: str) -> Callable[..., None]:
    plain = Run._note

    def note(self: Run, differing: int, at: str = "", /, **where: Any) -> None:
        if at != stage:
            plain(self, differing, at, **where)

    return note


def _first_layer_alone(self: Run, counts: list[int]) -> None:
    models, self.models = self.models, self.models[:1]
    _CHECK(self, counts)
    self.models = models


def _one_thread(self: Run) -> None:
    self.case = {**self.case, "threads": 1}
    _START(self)


def _equal_numbers(
    self: Run, what: str, layer: int, names: tuple[str, ...], truth: FloatArray, found: FloatArray
) -> None:
    if not np.array_equal(truth, found):
        _FLOATS(self, what, layer, names, truth, found)


def _no_parent(self: Run) -> None:
    self.cache = self.cache.fork()


_CHECK, _START, _FLOATS = Run.do_check, Run.__post_init__, Run._same_floats
#: What is left out: the attribute, what stands in its place, and the fault that hides behind it.
MUTATIONS: Final[Mapping[str, tuple[type, str, Any, str]]] = {
    "scores are not compared": (Run, "_check_scores", _nothing, "scores"),
    "attention is not compared": (Run, "_check_attend", _nothing, "one query"),
    "one query at once is left out": (Run, "do_check", _with_counts(lambda n: n > 1), "one query"),
    "many queries are left out": (Run, "do_check", _with_counts(lambda n: n == 1), "many queries"),
    "numbers are compared, not bits": (Run, "_same_floats", _equal_numbers, "minus zero"),
    "the first layer alone": (Run, "do_check", _first_layer_alone, "second layer"),
    "one thread alone": (Run, "__post_init__", _one_thread, "threads"),
    "bytes are not compared": (Run, "_check_bytes", _nothing, "pages"),
    "pages are taken as right": (Truth, "value", _taken_as_right("pages"), "pages"),
    "pages are not counted": (Run, "_note", _without_notes("page count"), "page less"),
    "dumps are taken as right": (Truth, "value", _taken_as_right("dump"), "dump"),
    "parents of forks are forgotten": (Run, "do_fork", _no_parent, "parent"),
    "forks are left out": (Run, "do_fork", _nothing, "same fork"),
    "resets are left out": (Run, "do_reset", _nothing, "after reset"),
    "refused truncations are not compared": (
        *(Run, "_note", _without_notes("truncate"), "other error"),
    ),
    "a refused truncate may change": (
        *(Run, "_note", _without_notes("refused truncate"), "refused and changed"),
    ),
    "what was restored is not compared": (
        *(Run, "_note", _without_notes("dump of a restored dump"), "restored"),
    ),
    "what attend refuses is not compared": (Run, "_note", _without_notes("attend"), "span"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, instead, fault = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, instead)
    assert found(*FAULTS[fault]) == 0


def test_every_fault_is_behind_a_mutation() -> None:
    assert {fault for *_, fault in MUTATIONS.values()} == set(FAULTS)


def test_what_is_shared_between_targets_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what a right target left, a wrong one is found; were its values not looked at, no."""
    shared.share_in(tmp_path)
    try:
        assert found(none, READ) == 0
        assert any(tmp_path.iterdir())
        assert found(scores, READ) > 0
        plain = Truth.value

        def trusting(self: Truth, what: str, value: Any, compute: Any) -> Any:
            return value if what in self._kept else plain(self, what, value, compute)

        monkeypatch.setattr(Truth, "value", trusting)
        assert found(scores, READ) == 0
    finally:
        shared.share_in(None)


def test_every_case_of_a_task_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong case before a right one; a sum that keeps the last alone misses it."""
    wrong = cast(Backend, Wrong(threads))
    backends = {"wrong": wrong, REFERENCE: kvassay.load(REFERENCE)}
    monkeypatch.setattr(kvassay, "load", lambda name, *_: backends[name])
    monkeypatch.setattr("kvassay_suites.parity.measure.write_replay", lambda *_: "")
    both = [READ, {**READ, "threads": 1}]

    def counted() -> float:
        (record,) = measure("wrong", "scalar", "math", "two cases", both)
        assert record.comparisons > 0
        return record.value

    assert counted() > 0

    def last(self: Result, other: Result) -> None:
        vars(self).update(vars(other))

    monkeypatch.setattr(Result, "add", last)
    assert counted() == 0


def planned() -> list[dict[str, Any]]:
    """All cases of the tasks for a backend that executes everything, and its golden ones."""
    request = Request((Target(REFERENCE, "scalar"),), ("turbo", "kivi"))
    arguments = [task.arguments for task in parity.tasks(request)]
    golden = [{"golden": name} for given in arguments for name in given.get("names", ())]
    return [*golden, *(case for given in arguments for case in given.get("cases", ()))]


def wanted() -> list[dict[str, Any]]:
    """The same, from the grid."""
    presets = [*preset_cases("turbo", "default"), *preset_cases("kivi", "default")]
    golden = [{"golden": name} for name in GOLDEN]
    return [*golden, *page_cases("default"), *presets, *cases("default")]


@pytest.mark.parametrize(
    ("attribute", "instead"),
    [
        ("_executes", lambda backend, case: case["plan"] != "cross read"),
        ("_supported", lambda target, backend, found: found[1:]),
        ("preset_cases", lambda name, depth: []),
        ("page_cases", lambda depth, supported: []),
        ("GOLDEN", ()),
    ],
)
def test_a_case_that_no_task_runs_is_missed(
    attribute: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned() == wanted()
    monkeypatch.setattr(f"{_target_tasks.__module__}.{attribute}", instead)
    assert planned() != wanted()
