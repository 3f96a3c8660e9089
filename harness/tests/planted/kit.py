"""The planted faults: which class, the rule meant for it, and the fewest tasks that should do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvassay.suite import Depth, Request, Target, Task, get_suite

PRESET: Final = "turbo"


@dataclass(frozen=True)
class Probe:
    """Tasks of a suite whose label matches `labels`."""

    suite: str
    labels: str
    depth: Depth = "quick"

    def tasks(self, target: Target, preset: str = PRESET) -> Sequence[Task]:
        """They; never none."""
        found = get_suite(self.suite).tasks(Request((target,), (preset,), depth=self.depth))
        chosen = [task for task in found if re.search(self.labels, task.label)]
        if not chosen:
            raise LookupError(f"no task of {self.suite} matches {self.labels!r}")
        return chosen


@dataclass(frozen=True)
class Planted:
    """A fault, the rule meant for it, and what the rule's evidence must say (a pattern).

    With `timeout`, in seconds, its tasks run in a process of their own, killed after that.
    """

    backend: str
    rule: str
    probe: Probe
    tells: str
    timeout: float | None = None

    @property
    def target(self) -> Target:
        """The broken backend as a target."""
        return Target(f"planted.{self.backend}", "scalar")


def fault(number: int) -> Probe:
    """The case of a fault by its number in docs/faults.md."""
    return Probe("correctness", f"^fault {number}:")


DISTORTION: Final = Probe("correctness", "^distortion (keys|values) (turbo:3|kivi:2)$")
SCALES: Final = Probe("correctness", "^scales ")
BIAS: Final = Probe("correctness", "^bias turbo:")
ERROR: Final = Probe("correctness", "^(error|growth) ")
RUNS: Final = Probe("correctness", "^codec_runs turbo$")
IDENTITY: Final = Probe("correctness", "^identity")
PAGES: Final = Probe("parity", " one page$")
PLANS: Final = Probe("parity", "( singles| one append| lifecycle)$")
CROSS: Final = Probe("parity", "d64 9q3kv .* cross read$", depth="default")
THREADS: Final = Probe("parity", " t3 ")
HELD: Final = Probe("memory", "bytes held$")
SCRATCH: Final = Probe("memory", "scratch$")
PEAK: Final = Probe("memory", "^peak ")
TINY: Final = Probe("quality", "tiny transformer")
#: Needs the model.
MODEL: Final = Probe("quality", "teacher forced")

PLANTED: Final = (
    Planted("decoding:ShrunkDecoder", "parity.mismatches", PAGES, "'stage': 'scores'"),
    Planted("decoding:BoundedShrunkDecoder", "correctness.distortion_ratio", DISTORTION, "turbo:3"),
    Planted(
        "decoding:BoundedFp32Store", "correctness.distortion_ratio", DISTORTION, "'measured': 0.0"
    ),
    Planted("decoding:BoundedFp32Store", "memory.unbilled_bytes", HELD, "'appended'"),
    Planted("decoding:BoundedFp32Store", "quality.exact_zeros", TINY, "quality.tiny_kl, gqa"),
    Planted("decoding:BoundedTwoBases", "correctness.distortion_ratio", DISTORTION, "turbo:3"),
    Planted("decoding:BoundedBiasedKeys", "correctness.bias_z", BIAS, "'relative_bias': -0.03"),
    Planted("decoding:BoundedCoarseScales", "correctness.scale_identity", SCALES, "'scale': 0.00"),
    Planted("decoding:TailNotStored", "parity.mismatches", PAGES, "'token': 15, 'channel': 63"),
    Planted("decoding:TailNotRead", "parity.mismatches", PAGES, "'stage': 'scores'.*'token': 15"),
    Planted(
        "decoding:BoundedCodecNeverRuns", "correctness.codec_dead", RUNS, "key codes.*value codes"
    ),
    Planted("decoding:BoundedCoarseCodes", "quality.tiny_logit_drift", TINY, "gqa"),
    Planted("decoding:BoundedCoarseCodes", "quality.attention_kl", MODEL, "all layers"),
    Planted(
        "attending:BoundedSwappedHeads", "correctness.faults", fault(28), "48 query heads on 2"
    ),
    Planted("attending:BoundedSwappedHeads", "quality.tiny_top1", TINY, "gqa"),
    Planted("attending:OneUlp", "parity.mismatches", PLANS, "'stage': 'attend'"),
    Planted("attending:ThreadsChangeABit", "parity.mismatches", THREADS, " t3 "),
    Planted("attending:BoundedHalfTheChannels", "correctness.faults", fault(6), "the stored row"),
    Planted(
        "attending:BoundedSaturating", "correctness.faults", fault(22), "scores of the largest keys"
    ),
    Planted("attending:BoundedSecondCall", "correctness.faults", fault(4), "7 queries asked again"),
    Planted("attending:BoundedFewQueryBits", "correctness.oracle_error", ERROR, "gaussian scores"),
    Planted("attending:BoundedFewQueryBits", "correctness.contract_growth", ERROR, "'scores'"),
    Planted("attending:TighterThanItIs", "parity.relative_error", PLANS, "'bound': 1e-09"),
    Planted(
        "attending:BoundedHalfWindow", "correctness.faults", fault(49), "token 11 of the window"
    ),
    Planted("attending:BoundedSpanOffByOne", "correctness.faults", fault(31), "over the last 4"),
    Planted("attending:BoundedKeysForValues", "correctness.faults", fault(6), "the stored row"),
    Planted(
        "attending:BoundedPreviousLayer",
        "correctness.faults",
        fault(48),
        "layer 1 and a cache of one",
    ),
    Planted("attending:ForeignPages", "parity.cross_read", CROSS, "'stage': 'attend', 'op': 6"),
    Planted(
        "state:BoundedFrontierStays", "correctness.faults", fault(32), "cut to .* found accepted"
    ),
    Planted(
        "state:BoundedSharedFork",
        "correctness.faults",
        fault(34),
        "the parent of fork 1, which grew",
    ),
    Planted("state:BoundedOneByOne", "correctness.faults", fault(1), r"as \[1, 1, 1\]"),
    Planted(
        "state:BoundedSwallowsNaN",
        "correctness.faults",
        fault(18),
        "append of nan .*found accepted",
    ),
    Planted(
        "state:BoundedHalfWritten", "correctness.faults", fault(18), "the cache before and after"
    ),
    Planted(
        "state:BoundedStridesIgnored",
        "correctness.faults",
        fault(27),
        "transposed: dump must be equal",
    ),
    Planted("state:BoundedDirtyReset", "correctness.faults", fault(34), "dump after a reset"),
    Planted("state:AnyIdentity", "correctness.identity_accepted", IDENTITY, "seed = 6: accepted"),
    Planted(
        "state:ModelNameOnly", "correctness.identity_accepted", IDENTITY, "'other'.*: accepted"
    ),
    Planted("state:NoChecksum", "correctness.identity_accepted", IDENTITY, "flipped: accepted"),
    Planted(
        "state:NoPageChecksum", "correctness.identity_accepted", IDENTITY, "a code changed under"
    ),
    Planted("state:BadNumbersRead", "correctness.identity_accepted", IDENTITY, "nan among the key"),
    Planted("holding:UnbilledCopy", "memory.unbilled_bytes", HELD, "'appended'"),
    Planted("holding:BillsHalf", "memory.unbilled_bytes", HELD, "'appended'"),
    Planted("holding:DecodedShadow", "memory.shadow_bytes", HELD, "'attended'"),
    Planted("holding:KeptAfterClose", "memory.retained_bytes", HELD, "'sessions'"),
    Planted("holding:ScratchGrows", "memory.scratch_growth", SCRATCH, "16384"),
    Planted("holding:StagingNeverShrinks", "memory.peak_ratio", PEAK, "prefill resident"),
    Planted("process:Crash", "run.errors", RUNS, r"SIGABRT.*process\.py.* in attend", timeout=60.0),
    Planted("process:Hang", "run.errors", RUNS, "timed out", timeout=6.0),
    Planted("process:Raise", "run.errors", RUNS, "ZeroDivisionError.*in attend"),
)
