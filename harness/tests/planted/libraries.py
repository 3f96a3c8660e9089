"""Planted faults as shared libraries: the same gate, by the door for other people's code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .kit import HELD, IDENTITY, Probe, fault

#: Rejected at the door, in a process of its own, before anything is measured.
DOOR: Final = None
PAGE: Final = Probe("parity", "^page: turbo.* one page$")
OUTSIDE: Final = fault(50)
BEYOND: Final = Probe("correctness", "^fault 51:", depth="default")
PLANS: Final = Probe("parity", "( singles| one append)$")


@dataclass(frozen=True)
class Fault:
    """A fault of faulty.c by its number: the rule meant for it, and what its evidence says."""

    number: int
    what: str
    rule: str
    probe: Probe | None
    tells: str
    timeout: float | None = None


def _outside(number: int, what: str, tells: str, probe: Probe = OUTSIDE) -> Fault:
    return Fault(number, what, "correctness.faults", probe, tells)


PLANTED: Final = (
    Fault(1, "another ABI", "run.errors", DOOR, "abi_version is 7, this kvassay needs 1"),
    Fault(2, "another page version", "run.errors", DOOR, "page_version is 1, .* needs 2"),
    Fault(3, "neither exact nor bounded", "run.errors", DOOR, "neither bits .* nor a bound"),
    Fault(4, "supports what it then refuses", "run.errors", DOOR, "no memory for this codec"),
    Fault(5, "nothing is freed", "memory.retained_bytes", HELD, "sessions"),
    Fault(6, "last channel not stored", "parity.mismatches", PAGE, "'stage': 'key"),
    Fault(7, "keys for values", "parity.mismatches", PAGE, "'stage': 'key"),
    Fault(8, "heads rotated", "parity.mismatches", PAGE, "'stage': 'key"),
    Fault(9, "values rounded", "parity.mismatches", PAGE, "'stage': 'value"),
    Fault(10, "values in reverse", "parity.mismatches", PAGE, "'stage': 'value"),
    Fault(11, "last token dropped", "run.errors", PAGE, "layer 0 holds 15 tokens"),
    Fault(12, "one layer for all", "correctness.faults", fault(48), "layer 0 and a cache of one"),
    Fault(13, "one unit in the last place", "parity.mismatches", PAGE, "'stage': 'attend'"),
    Fault(14, "first of n queries wrong", "correctness.faults", fault(4), "query 0 of 7"),
    Fault(15, "query heads mixed up", "correctness.faults", fault(28), "12 query heads on 12"),
    Fault(16, "half of the channels", "correctness.faults", fault(6), "the stored row"),
    Fault(17, "dies with several queries", "run.errors", PLANS, "SIGABRT", 60.0),
    Fault(18, "hangs with several queries", "run.errors", PLANS, "timed out", 8.0),
    Fault(19, "dies at once", "run.errors", DOOR, "killed by SIGABRT"),
    Fault(20, "scores without scale", "parity.mismatches", PAGE, "'stage': 'scores'"),
    Fault(21, "truncate does nothing", "correctness.faults", fault(33), "cut to"),
    Fault(22, "reset does nothing", "correctness.faults", fault(34), "after a reset"),
    Fault(23, "a fork is empty", "correctness.faults", fault(34), "truncate: 40 is outside 0"),
    Fault(24, "any identity", "correctness.identity_accepted", IDENTITY, "accepted"),
    Fault(25, "bills half of the codes", "memory.unbilled_bytes", HELD, "appended"),
    Fault(26, "says that nothing ran", "run.errors", DOOR, "nothing ran instead of scalar"),
    _outside(27, "a byte behind out", "kv_cache_attend: out .*1 byte behind .* farthest 1 away"),
    _outside(28, "a byte in front of out", "kv_cache_attend: out .*1 byte in front of its start"),
    _outside(29, "reads behind q", "kv_cache_scores: q .*1 bytes away behind its end", BEYOND),
    _outside(30, "a byte behind its state", "kv_cache_create: memory of the cache .40 bytes.:"),
    _outside(31, "kernel: a byte behind out", "kv_attend: out .*1 byte behind its end"),
    _outside(32, "kernel: a byte behind the page", "kv_page_encode: the page .*1 byte behind"),
    _outside(33, "kernel: behind scratch", "kv_attend: scratch .*1 byte .*the farthest 3 away"),
    _outside(34, "kernel: a byte behind the plan", "kv_plan_init: the plan .*1 byte behind"),
    _outside(35, "kernel: changes the keys", "kv_page_encode: fp16 rows .*changed, though"),
    _outside(36, "kernel: changes the state", "kv_attend: kv_state .*changed, though"),
)
