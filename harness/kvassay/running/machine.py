"""What the figures of a run depend on besides the code: machine, interpreter, packages."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import psutil

from .._version import __version__
from ..backend.sources import sources_of
from ..records import Record
from ..registry import backends, providers
from .workers import cores

#: Instruction sets that kernels of this field choose between.
FLAGS_OF_INTEREST: Final = (
    "ssse3", "sse4_1", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw",
    "avx512vbmi", "avx512_vnni", "avx512_bf16", "amx_int8", "neon", "asimd", "asimddp", "i8mm",
    "sve", "sve2",
)  # fmt: skip
_CPU: Final = Path("/sys/devices/system/cpu/cpu0")
_PACKAGES: Final = ("numpy", "scipy", "cffi", "gguf", "tokenizers", "wasmtime", "onnxruntime")


def describe_machine() -> dict[str, Any]:
    """Plain data for reports: system, processor, its caches and frequency, memory in bytes,
    package versions."""
    model, flags = _processor()
    return {
        "kvassay": __version__,
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": model,
        "flags": [flag for flag in FLAGS_OF_INTEREST if flag in flags],
        "cores": cores(),
        "caches": {cache.name: cache.describe() for cache in caches()},
        "frequency": frequency(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


@dataclass(frozen=True)
class CacheLevel:
    """A cache of the first core that holds data: its size in bytes and how many cores share it."""

    level: int
    bytes: int
    cores: int

    @property
    def name(self) -> str:
        """As people say it."""
        return f"L{self.level}"

    def describe(self) -> str:
        """Size, and who shares it."""
        return f"{self.bytes >> 10} KiB" + (f" for {self.cores} cores" if self.cores > 1 else "")


def caches(cpu: Path = _CPU) -> list[CacheLevel]:
    """Caches for data, the nearest first; none where the system does not tell."""
    found = []
    for folder in sorted(cpu.glob("cache/index*")):
        facts = {
            name: _line(folder / name) for name in ("level", "type", "size", "shared_cpu_list")
        }
        kib = re.fullmatch(r"(\d+)K", facts["size"])
        if facts["type"] in ("Data", "Unified") and facts["level"].isdigit() and kib:
            shared = sum(map(_span, facts["shared_cpu_list"].split(",")))
            found.append(CacheLevel(int(facts["level"]), int(kib[1]) << 10, shared))
    return sorted(found, key=lambda cache: cache.level)


def frequency(cpu: Path = _CPU) -> str:
    """Who sets the frequency of the cores, as far as the system tells."""
    governor = _line(cpu / "cpufreq" / "scaling_governor")
    return f"governor {governor}" if governor else "set by the host, not to be seen from here"


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _span(text: str) -> int:
    """How many cores a range such as 0-3 names."""
    first, _, last = text.partition("-")
    return int(last or first) - int(first) + 1 if first else 1


def machine_record() -> Record:
    """The machine as a record, kept with the results that were measured on it."""
    return Record(
        suite="run",
        check="run.machine",
        stage="",
        backend="",
        variant="",
        value=float(cores()),
        unit="cores",
        comparisons=1,
        detail=describe_machine(),
    )


def availability_records() -> list[Record]:
    """One record for each variant of each backend: 1 if it runs here, status and reason."""
    return [
        Record(
            suite="run",
            check="run.availability",
            stage="",
            backend=name,
            variant=variant,
            value=float(state.runs),
            unit="runs",
            comparisons=1,
            detail={"status": state.status, "reason": state.reason},
        )
        for name, variants in backends().items()
        for variant, state in variants.items()
    ]


def describe_target(backend: str, variant: str) -> list[Record]:
    """What a backend declares about itself. A task, since loading it may already crash."""
    from ..registry import load

    loaded = load(backend, variant)
    return [
        Record(
            suite="run",
            check="run.target",
            stage="",
            backend=backend,
            variant=variant,
            value=1.0,
            unit="loaded",
            comparisons=1,
            detail={
                "exact": loaded.exact,
                "bound": loaded.bound,
                "build_id": loaded.build_id,
                "sources": "" if loaded.build_id else sources_of(type(loaded)),
                "protocol": providers()[backend].protocol if backend in providers() else None,
                # what a backend of files says about them: names, digests, what runs them
                "evidence": dict(getattr(loaded, "evidence", {})),
            },
        )
    ]


def _processor() -> tuple[str, frozenset[str]]:
    """Model name and flags, from /proc/cpuinfo where there is one."""
    fields: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    if os.path.exists(path):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip().lower(), value.strip())
    model = fields.get("model name") or platform.processor() or platform.machine()
    flags = fields.get("flags") or fields.get("features") or ""
    return model, frozenset(flags.split())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
