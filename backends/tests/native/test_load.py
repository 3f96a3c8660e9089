"""Conversations by the thousand over a bounded pool, and processes killed while they dump."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from load_tools import Load
from sharing import give, load, spec_of, targets

from kvassay.page.dump import parse_dump

TARGETS = targets()
_DUMPER = """
import hashlib, sys
from sharing import give, load, spec_of
target, folder, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
spec = spec_of()
cache = load(target).prepare(spec)
give(cache, list(range(first, first + 60)))
for number in range(first, first + 10**6):
    give(cache, [number % 251])
    if cache.lengths[0] > 400:
        cache.reset()
    data = cache.dump(f"{folder}/{number % 7}.kvdm")
    print(number % 7, hashlib.sha256(data).hexdigest(), flush=True)
"""


def figures(run: Load) -> str:
    """What happened, for the docs."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(run.counts.items()))


def talk(target: str, conversations: int, check_every: int) -> Load:
    run = Load(target, check_every)
    run.run(conversations)
    print(f"{target}: {figures(run)}; lost {len(run.lost)}")
    assert run.lost == []
    assert run.left == run.empty
    assert run.counts["conversations"] == conversations
    return run


@pytest.mark.parametrize("target", TARGETS)
def test_conversations_over_a_bounded_pool(target: str) -> None:
    run = talk(target, 60, 5)
    assert run.counts["memory refused"] > 0


@pytest.mark.long
def test_ten_thousand_conversations() -> None:
    for target in TARGETS:
        own = target.startswith("native")
        run = talk(target, 10_000 if own else 1_000, 20)
        assert min(run.counts[what] for what in ("conversations evicted", "prefixes adopted"))


def killed(target: str, folder: Path, kills: int) -> tuple[int, int]:
    """Start a process that dumps without pause, kill it at a random moment, look at what is there;
    (dumps confirmed, dumps looked at)."""
    draw = random.Random(5)
    spec = spec_of()
    confirmed = looked = 0
    newest: dict[str, str] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for first in range(kills):
        command = [sys.executable, "-c", _DUMPER, target, str(folder), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline()]
            time.sleep(draw.random() * 0.05)
            os.kill(child.pid, signal.SIGKILL)
            lines += child.stdout.readlines()
        said = [line.decode().split() for line in lines if line.endswith(b"\n")]
        confirmed += len(said)
        for name, digest in said:
            newest[name] = digest
        last = said[-1][0]
        for name, digest in newest.items():
            data = (folder / f"{name}.kvdm").read_bytes()
            parse_dump(spec, data)
            looked += 1
            found = hashlib.sha256(data).hexdigest()
            if found != digest:  # the one after the last confirmed: written, not yet said
                assert int(name) == (int(last) + 1) % 7, name
                newest[name] = found
    assert set(newest) <= {path.stem for path in folder.glob("*.kvdm")}
    return confirmed, looked


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_kill_while_dumping_loses_nothing(tmp_path: Path) -> None:
    confirmed, looked = killed("native.scalar", tmp_path, 4)
    assert confirmed > 4
    assert looked >= 4
    with load("native.scalar").restore(spec_of(), tmp_path / "0.kvdm") as cache:
        give(cache, [1])


@pytest.mark.long
def test_many_kills_while_dumping_lose_nothing(tmp_path: Path) -> None:
    confirmed, looked = killed("native.scalar", tmp_path, 100)
    print(f"100 kills, {confirmed:,} dumps confirmed, {looked:,} looked at, none corrupt or lost")
    assert confirmed >= 100
