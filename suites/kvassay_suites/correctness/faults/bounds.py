"""Faults 50 and 51: what foreign code writes, or reads, outside of the memory it was given."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from typing import Final

import kvassay
from kvassay.backend.fences import PAGE, fenced, tell_deaths
from kvassay.errors import KvassayError
from kvassay.protocol import Backend

from ...common.process import ChildError, call_fresh
from ...common.specs import ONE_LAYER
from .case import PAIRS, Findings, Subject, case, filled, kv, queries, same, seen, small

_HEAD_DIMS: Final = (64, 80)
#: Bytes between the end of a buffer and the guard page: as close as it may lie, and at addresses
#: that are aligned to 4 alone.
_GAPS: Final = (0, 4, 20)
_HERE: Final = "kvassay_suites.correctness.faults.bounds"


@case(50, "bytes written outside of what was given", ONE_LAYER)
def written(find: Findings, subject: Subject) -> None:
    """47 tokens of every codec family at head dims 64 and 80, one query and several, scores, dump,
    fork, restore, reset; every buffer, plan, scratch, page and piece of state lies between
    sentinels that are compared after each call.

    Expected: none changes, nor what was given to be read; the same bits as without.
    """
    _compare(find, subject.backend, PAGE)


@case(51, "memory touched beyond a buffer", ONE_LAYER)
def touched(find: Findings, subject: Subject) -> None:
    """The same in a process of its own, where a page that nobody may touch begins 0, 4 and 20 bytes
    behind each buffer.

    Expected: the process lives, with the same bits.
    """
    who = {"backend": subject.name, "variant": subject.variant}
    try:
        asserted, failures = call_fresh(f"{_HERE}:use_near_guards", who)
    except ChildError as error:
        find.holds(False, "nothing beyond a buffer is touched", error)
    else:
        find.asserted += asserted
        find.failures += failures


def use_near_guards(backend: str, variant: str) -> tuple[int, list[str]]:
    """What was asserted, and what did not hold; the process may be lost."""
    find = Findings()
    loaded = Subject(backend, variant).backend
    faulthandler.enable()
    tell_deaths()
    for gap in _GAPS:
        _compare(find, loaded, gap)
    return find.asserted, find.failures


def _compare(find: Findings, backend: Backend, gap: int) -> None:
    """Use caches with fences, and where that went well without: elsewhere it might be the end of
    this process."""
    for spec in _specs():
        if not find.executes(backend, spec):
            continue
        who = f"{spec.keys}/{spec.values} at head dim {spec.head_dim}"
        try:
            with fenced(gap):
                found = _use(backend, spec)
        except KvassayError as error:
            find.holds(False, f"{who}: nothing outside of what was given is written", error)
        else:
            same(find, found, _use(backend, spec), f"{who}, fenced")


def _specs() -> Iterator[kvassay.Spec]:
    for head_dim in _HEAD_DIMS:
        for keys, values in PAIRS:
            yield small(keys=keys, values=values, head_dim=head_dim, window=3, sinks=1)


def _use(backend: Backend, spec: kvassay.Spec) -> dict[str, bytes]:
    """Everything seen of a cache that grew unevenly, was forked, restored and reset."""
    q = queries(spec, 7)
    with filled(backend, spec, *kv(spec, 47), chunks=[1, 20, 26]) as cache:
        found = seen(cache, q)
        with cache.fork() as fork, backend.restore(spec, found["dump"]) as restored:
            for other in (fork, restored):
                other.append(0, *kv(spec, 9, seed=3))
            found["outputs of a fork"] = fork.attend(0, q).tobytes()
            found["outputs of a restored cache"] = restored.attend(0, q).tobytes()
        cache.truncate(46)
        found["scores after a cut"] = cache.scores(0, q[0]).tobytes()
        assert cache.nbytes
        assert cache.counters
        cache.reset()
    return found
