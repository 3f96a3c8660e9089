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
    """Tasks of a suite whose label matches `labels`, for the preset `turbo`."""

    suite: str
    labels: str
    depth: Depth = "quick"

    def tasks(self, target: Target) -> Sequence[Task]:
        """They; never none."""
        found = get_suite(self.suite).tasks(Request((target,), (PRESET,), depth=self.depth))
        chosen = [task for task in found if re.search(self.labels, task.label)]
        if not chosen:
            raise LookupError(f"no task of {self.suite} matches {self.labels!r}")
        return chosen


@dataclass(frozen=True)
class Planted:
    """A fault. `timeout` in seconds: run in a process of its own and kill it after that."""

    backend: str
    rule: str
    probe: Probe
    timeout: float | None = None

    @property
    def target(self) -> Target:
        """The broken backend as a target."""
        return Target(f"broken.{self.backend}", "scalar")


DISTORTION: Final = Probe("correctness", "^distortion (keys|values) (turbo:3|kivi:2)$")
SCALES: Final = Probe("correctness", "^scales ")
BIAS: Final = Probe("correctness", "^bias turbo:")
ERROR: Final = Probe("correctness", "^(error|growth) ")
RUNS: Final = Probe("correctness", "^codec_runs turbo$")
IDENTITY: Final = Probe("correctness", "^identity")
FAULTS: Final = Probe("correctness", "^faults")
PAGES: Final = Probe("parity", " one page$")
PLANS: Final = Probe("parity", "( singles| one append| lifecycle)$")
CROSS: Final = Probe("parity", "d64 9q3kv .* cross read$", depth="default")
THREADS: Final = Probe("parity", " t3 ")
HELD: Final = Probe("memory", "bytes held$")
SCRATCH: Final = Probe("memory", "scratch$")
PEAK: Final = Probe("memory", "^peak ")
TINY: Final = Probe("quality", "tiny transformer")

PLANTED: Final = (
    Planted("decoding:ShrunkDecoder", "parity.mismatches", PAGES),
    Planted("decoding:BoundedShrunkDecoder", "correctness.distortion_ratio", DISTORTION),
    Planted("decoding:BoundedFp32Store", "correctness.distortion_ratio", DISTORTION),
    Planted("decoding:BoundedTwoBases", "correctness.distortion_ratio", DISTORTION),
    Planted("decoding:BoundedBiasedKeys", "correctness.bias_z", BIAS),
    Planted("decoding:BoundedCoarseScales", "correctness.scale_identity", SCALES),
    Planted("decoding:TailNotStored", "parity.mismatches", PAGES),
    Planted("decoding:TailNotRead", "parity.mismatches", PAGES),
    Planted("decoding:BoundedCodecNeverRuns", "correctness.codec_dead", RUNS),
    Planted("decoding:BoundedCoarseCodes", "quality.tiny_logit_drift", TINY),
    Planted("attending:BoundedSwappedHeads", "correctness.faults", FAULTS),
    Planted("attending:BoundedSwappedHeads", "quality.tiny_top1", TINY),
    Planted("attending:OneUlp", "parity.mismatches", PLANS),
    Planted("attending:ThreadsChangeABit", "parity.mismatches", THREADS),
    Planted("attending:BoundedSecondCall", "correctness.faults", FAULTS),
    Planted("attending:BoundedFewQueryBits", "correctness.oracle_error", ERROR),
    Planted("attending:BoundedFewQueryBits", "correctness.contract_growth", ERROR),
    Planted("attending:TighterThanItIs", "parity.relative_error", PLANS),
    Planted("attending:BoundedHalfWindow", "correctness.faults", FAULTS),
    Planted("attending:BoundedSpanOffByOne", "correctness.faults", FAULTS),
    Planted("attending:BoundedKeysForValues", "correctness.faults", FAULTS),
    Planted("attending:BoundedPreviousLayer", "correctness.faults", FAULTS),
    Planted("attending:ForeignPages", "parity.cross_read", CROSS),
    Planted("state:BoundedFrontierStays", "correctness.faults", FAULTS),
    Planted("state:BoundedSharedFork", "correctness.faults", FAULTS),
    Planted("state:BoundedOneByOne", "correctness.faults", FAULTS),
    Planted("state:BoundedSwallowsNaN", "correctness.faults", FAULTS),
    Planted("state:BoundedHalfWritten", "correctness.faults", FAULTS),
    Planted("state:BoundedStridesIgnored", "correctness.faults", FAULTS),
    Planted("state:BoundedDirtyReset", "correctness.faults", FAULTS),
    Planted("state:AnyIdentity", "correctness.identity_accepted", IDENTITY),
    Planted("state:ModelNameOnly", "correctness.identity_accepted", IDENTITY),
    Planted("state:NoChecksum", "correctness.identity_accepted", IDENTITY),
    Planted("decoding:BoundedFp32Store", "memory.unbilled_bytes", HELD),
    Planted("holding:UnbilledCopy", "memory.unbilled_bytes", HELD),
    Planted("holding:DecodedShadow", "memory.shadow_bytes", HELD),
    Planted("holding:KeptAfterClose", "memory.retained_bytes", HELD),
    Planted("holding:ScratchGrows", "memory.scratch_growth", SCRATCH),
    Planted("holding:StagingNeverShrinks", "memory.peak_ratio", PEAK),
    Planted("process:Crash", "run.errors", RUNS, timeout=60.0),
    Planted("process:Hang", "run.errors", RUNS, timeout=10.0),
    Planted("process:Raise", "run.errors", RUNS),
)
