"""Which formats `kvassay foreign` judges, and what `--hf-cache` and `--codec` name."""

from __future__ import annotations

from collections.abc import Sequence

from ...backend import array_codec, hf_cache
from ...backend.named_class import named
from ...backend.own_formats import OwnFormatBackend
from ...errors import KvassayError
from ...registry import load
from ...suggest import did_you_mean
from ...suite import Target


def choose_formats(targets: Sequence[Target], names: Sequence[str]) -> tuple[str, ...]:
    """Formats by name, all that the targets have by default; KvassayError for one that one of them
    lacks, and for a backend without formats of its own."""
    found: list[str] = []
    for target in targets:
        backend = load(target.backend, target.variant)
        if not isinstance(backend, OwnFormatBackend):
            raise KvassayError(
                f"{target.backend} has no formats of its own: judge it by kvassay gate, and name "
                f"one that has by --backend module:Class"
            )
        for name in names:
            if name not in backend.formats:
                hint = did_you_mean(name, backend.formats)
                raise KvassayError(f"{target.backend} has no format {name!r}{hint}")
        found += names or backend.formats
    return tuple(dict.fromkeys(found))


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
