"""Which formats of a backend's own are judged, by which suites, and what `--hf-cache` and `--codec`
name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...backend import array_codec, hf_cache
from ...backend.named_class import named
from ...backend.own_formats import OwnFormatBackend
from ...errors import KvassayError
from ...registry import load
from ...running.workers import IsolatedPool, WorkerDied, WorkerTimeout
from ...suggest import did_you_mean
from ...suite import Target
from .files import TRIALS
from .selecting import is_foreign


def own_formats(targets: Sequence[Target], timeout: float) -> dict[str, str]:
    """Formats of the targets' own, each with the suite that judges it; none where all of them are
    caches of this project's specs.

    Somebody's class is asked in a worker; one that dies there dies again where that is recorded.
    Raises KvassayError where some of the targets have formats of their own and others have none.
    """
    asked = [
        one for one in targets if is_foreign(one) and one.backend.partition(":")[0] not in TRIALS
    ]
    own = _ask(asked, timeout) if asked else {}
    found = {name: suite for formats in own.values() for name, suite in formats.items()}
    without = [target.backend for target in targets if not own.get(target)]
    if found and without:
        raise KvassayError(
            f"some of these backends have formats of their own, {without[0]} has none: judge them "
            f"apart"
        )
    return found


def _ask(targets: Sequence[Target], timeout: float) -> dict[Target, dict[str, str]]:
    """`formats_of` of those that survive it."""
    found = {}
    with IsolatedPool(1, timeout) as pool:
        for target in targets:
            with suppress(WorkerDied, WorkerTimeout):
                found[target] = pool.submit(formats_of, target).result()
    return found


def formats_of(target: Target) -> dict[str, str]:
    """Formats of a target's own by name, with their suites."""
    backend = load(target.backend, target.variant)
    if not isinstance(backend, OwnFormatBackend):
        return {}
    return {name: format_.suite for name, format_ in backend.formats.items()}


def choose_formats(
    targets: Sequence[Target], names: Sequence[str], suite: str, timeout: float
) -> tuple[str, ...]:
    """Formats by name, by default all that the suite judges; KvassayError for one that there is
    not, and for backends without formats of their own."""
    known = own_formats(targets, timeout)
    if targets and not known:
        raise KvassayError(
            f"{targets[0].backend} has no formats of its own: judge it by kvassay gate, and name "
            f"one that has by --backend module:Class"
        )
    return named_formats(names or [name for name in known if known[name] == suite], known)


def named_formats(names: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """Formats by name, all by default; KvassayError for one that there is not."""
    for name in names:
        if name not in known:
            raise KvassayError(f"no format {name!r}{did_you_mean(name, known)}")
    return tuple(dict.fromkeys(names or known))


def class_names(
    caches: Sequence[str] | None,
    cache_options: Sequence[str] | None,
    codecs: Sequence[str] | None,
    codec_options: Sequence[str] | None,
    claimed: float | None,
) -> list[str]:
    """Backends that stand for classes; KvassayError for options without a class, and bad ones."""
    doors = (
        (hf_cache.SCHEME, "--hf-cache", caches, "--hf-options", cache_options),
        (array_codec.SCHEME, "--codec", codecs, "--codec-options", codec_options),
    )
    found = []
    for scheme, door, paths, option, options in doors:
        if options and not paths:
            raise KvassayError(f"{option} goes with {door}: name a class")
        found += [f"{scheme}:{named(path, options or (), option, claimed)}" for path in paths or ()]
    if claimed is not None and not found:
        raise KvassayError("--claimed-bits goes with --hf-cache or --codec: name a class")
    return found
