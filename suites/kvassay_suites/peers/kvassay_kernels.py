"""Two of our kernels alone: query transform and key scan, without what a cache adds around them.

The library does not export kernels, so this compiles the C sources of a checkout anew.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import cffi
import numpy as np

from kvassay.registry import providers

from .cases import Case
from .inputs import Inputs
from .protocol import NotMeasured, Peer, Prepared, Result, need

_HELPER: Final = Path(__file__).with_suffix(".c")
_RECIPE: Final = Path(__file__).parents[3] / "backends" / "build" / "recipe.py"
_CHUNK: Final = 1 << 12
_DECLARATIONS: Final = """
int32_t kernels_begin(const char *variant, uint32_t d);
int32_t kernels_proven(void);
void kernels_transform(const float *x, uint32_t rows, float *y);
int32_t kernels_encode(float *keys, uint32_t tokens, uint8_t *tiles, float *scales);
float kernels_query(const float *z, int8_t *q);
void kernels_scan(const uint8_t *tiles, uint32_t tokens, const int8_t *q, int32_t *out);
"""


@cache
def _library() -> tuple[Any, Any]:
    """The sources of a checkout and the helper, compiled by the recipe of the build."""
    need("ziglang")
    if not _RECIPE.is_file():
        raise NotMeasured(f"needs the C sources of a checkout: no {_RECIPE}")
    recipe = runpy.run_path(str(_RECIPE))
    units = recipe["sources"](recipe["host_target"]().machine)
    files = [*((unit.path, unit.flags) for unit in units), (_HELPER, ())]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernels.so"
        _compile(recipe, files, made)
        ffi = cffi.FFI()
        ffi.cdef(_DECLARATIONS)
        return ffi, ffi.dlopen(str(made))


def _compile(
    recipe: Mapping[str, Any], files: list[tuple[Path, tuple[str, ...]]], made: Path
) -> None:
    """Objects, two at a time, then one library that shows all of its functions."""
    sources = recipe["SOURCES"]
    flags = [flag for flag in recipe["C_FLAGS"] if flag != "-fvisibility=hidden"]
    common = (*flags, f"-I{sources / 'include'}", f"-I{sources}", '-DKV_BUILD_ID="peers"')

    def one(number: int, path: Path, own: tuple[str, ...]) -> str:
        target = made.parent / f"{number}.o"
        _zig(*common, "-mcpu=baseline", *own, "-c", str(path), "-o", str(target))
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(one, range(len(files)), *zip(*files, strict=True)))
    _zig("-shared", "-o", str(made), *objects, "-lm", "-pthread")


def _zig(*arguments: str) -> None:
    command = (sys.executable, "-m", "ziglang", "cc", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasured(f"the sources do not compile: {done.stderr.splitlines()[0]}")


class _Kernel(Prepared):
    def __init__(self, case: Case, variant: str) -> None:
        self.ffi, self.lib = _library()
        self.d, self.name = case.head_dim, variant.encode()
        self.begin()

    def begin(self) -> None:
        if self.lib.kernels_begin(self.name, self.d):
            raise NotMeasured(f"the sources have no variant {self.name.decode()} that runs here")

    def proven(self) -> None:
        if not self.lib.kernels_proven():
            raise NotMeasured("another variant ran than the one asked for")

    @property
    def gain(self) -> float:
        """T T' of two rounds: the square of the largest power of two that divides d."""
        return float((self.d & -self.d) ** 2)


class _Transform(_Kernel):
    def __init__(self, case: Case, variant: str, inputs: Inputs) -> None:
        super().__init__(case, variant)
        self._rows, self._y = case.query_heads, np.empty(inputs.q[0].shape, np.float32)
        self._from = self.ffi.from_buffer("float *", inputs.q)
        self._to = self.ffi.from_buffer("float *", self._y)

    def before(self) -> None:
        self.begin()

    def run(self) -> None:
        self.lib.kernels_transform(self._from, self._rows, self._to)

    def result(self) -> Result:
        self.proven()
        found: Result = (self._y / self.gain**0.5).astype(np.float32)
        return found


class _Scan(_Kernel):
    """Real keys, encoded by the kernels; scales are multiplied in after the time is taken."""

    def __init__(self, case: Case, variant: str, inputs: Inputs) -> None:
        super().__init__(case, variant)
        self._tokens = case.tokens
        self.bytes = case.tokens * case.head_dim // 2
        self._tiles = np.empty(self.bytes, np.uint8)
        self._scales = np.empty(case.tokens, np.float32)
        self._sums = np.empty(case.tokens, np.int32)
        self._q = np.empty(case.head_dim, np.int8)
        pointer = self.ffi.from_buffer
        for start in range(0, case.tokens, _CHUNK):
            keys = inputs.keys[start : start + _CHUNK, 0].copy()
            tiles = pointer("uint8_t *", self._tiles) + start * case.head_dim // 2
            scales = pointer("float *", self._scales) + start
            if self.lib.kernels_encode(pointer("float *", keys), len(keys), tiles, scales):
                raise NotMeasured("no memory to encode keys")
        z = np.empty(case.head_dim, np.float32)
        self.lib.kernels_transform(pointer("float *", inputs.q), 1, pointer("float *", z))
        self._step = self.lib.kernels_query(pointer("float *", z), pointer("int8_t *", self._q))
        self._arguments = (
            pointer("uint8_t *", self._tiles),
            case.tokens,
            pointer("int8_t *", self._q),
            pointer("int32_t *", self._sums),
        )

    def before(self) -> None:
        self.begin()

    def run(self) -> None:
        self.lib.kernels_scan(*self._arguments)

    def result(self) -> Result:
        self.proven()
        scale = self._scales * np.float32(self._step / self.gain)
        scores: Result = (self._sums * scale).astype(np.float32)[None]
        return scores


class KernelsPeer(Peer):
    """Every variant that runs here, on one thread, since a kernel has no more."""

    name = "kvassay kernel"
    role = "ours"

    def types(self, case: Case) -> Mapping[str, float]:
        tolerance = {"transform": 1e-6, "scan": 0.15}
        if case.kind not in tolerance:
            return {}
        variants = providers()["native"].variants()
        return {name: tolerance[case.kind] for name, state in variants.items() if state.runs}

    def version(self) -> str:
        return "kvassay sources"

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        if threads > 1:
            raise NotMeasured("a kernel runs on one thread")
        return (_Scan if case.kind == "scan" else _Transform)(case, type_, inputs)


peer = KernelsPeer()
