"""A plain read of as many bytes: the bound that memory sets, on this machine, in the same run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import cffi
import numpy as np

from .cases import Case
from .inputs import Inputs
from .protocol import NotMeasured, Peer, Prepared, Result, Sum, installed, need

_SOURCE: Final = Path(__file__).with_suffix(".c")
_BLOCK: Final = 256
#: Bytes a run reads at least, so that handing them to threads costs nothing.
_RUN_BYTES: Final = 1 << 26


@cache
def _library() -> tuple[Any, Any]:
    """plain_read.c, compiled for this processor."""
    need("ziglang")
    ffi = cffi.FFI()
    ffi.cdef("uint64_t plain_read(const uint8_t *data, uint64_t bytes, uint32_t times);")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "plain_read.so"
        flags = ("-O3", "-march=native", "-shared", "-fPIC", "-fno-sanitize=undefined")
        command = (sys.executable, "-m", "ziglang", "cc", *flags, str(_SOURCE), "-o", str(made))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotMeasured(f"{_SOURCE.name} does not compile: {done.stderr.splitlines()[0]}")
        return ffi, ffi.dlopen(str(made))


class _Read(Prepared):
    """Each thread reads a share, an odd number of times, which leaves the sum as it is."""

    def __init__(self, case: Case, threads: int) -> None:
        self._ffi, self._lib = _library()
        self.bytes = case.plain_bytes
        self.units = -(-_RUN_BYTES // self.bytes) | 1
        self._data = np.random.default_rng(0).integers(0, 255, self.bytes, np.uint8)
        bounds = np.linspace(0, self.bytes // _BLOCK, threads + 1).astype(int) * _BLOCK
        self._parts = [self._data[a:b] for a, b in pairwise(bounds)]
        self._pool = ThreadPoolExecutor(threads)
        self._sum = 0

    def _read(self, part: Any) -> int:
        data = self._ffi.from_buffer("uint8_t *", part)
        found: int = self._lib.plain_read(data, part.nbytes, self.units)
        return found

    def run(self) -> None:
        one = len(self._parts) == 1
        sums = map(self._read, self._parts) if one else self._pool.map(self._read, self._parts)
        self._sum = 0
        for found in sums:
            self._sum ^= found

    def result(self) -> Result:
        return Sum(self._sum, int(np.bitwise_xor.reduce(self._data.view(np.uint64))))


class PlainReadPeer(Peer):
    """Its result is the exclusive or of what it read, held against numpy's."""

    name = "plain read"
    role = "bound"

    def types(self, case: Case) -> Mapping[str, float]:
        return {"same bytes": 0.0} if case.plain_bytes else {}

    def version(self) -> str:
        need("ziglang")
        return installed("ziglang")

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        return _Read(case, threads)


peer = PlainReadPeer()
