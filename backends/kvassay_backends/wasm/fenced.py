"""Parts of linear memory between sentinels: what a module writes outside of what it was given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvassay.backend.fences import MARGIN, sentinels, trespass

from .faults import ModuleFault
from .memory import LinearMemory


@dataclass
class _Part:
    what: str
    size: int
    #: What it must go on holding, if it was given to be read.
    constant: bytes | None = None


class FencedParts:
    """The parts of one memory that are fenced, by address. Usually there are none."""

    def __init__(self, memory: LinearMemory) -> None:
        self._memory = memory
        self._parts: dict[int, _Part] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, address: int, size: int, what: str) -> None:
        """Put sentinels around a part; there is room for `MARGIN` of them on either side."""
        for start in (address - MARGIN, address + size):
            self._memory.write_array(start, sentinels(MARGIN))
        self._parts[address] = _Part(what, size)

    def freeze(self, address: int) -> None:
        """From now on the part, if it is one, is to be read only."""
        part = self._parts.get(address)
        if part is not None:
            part.constant = self._memory.read(address, part.size)

    def drop(self, address: int) -> bool:
        """Forget a part that is given back; whether it was one."""
        return self._parts.pop(address, None) is not None

    def check(self, call: str) -> None:
        """ModuleFault if something around a part has changed, or in one that is to be read."""
        for address, part in self._parts.items():
            front, behind = (
                np.frombuffer(self._memory.read(start, MARGIN), np.uint8)
                for start in (address - MARGIN, address + part.size)
            )
            told = trespass(part.what, part.size, front, behind)
            held = part.constant
            if not told and held is not None and self._memory.read(address, part.size) != held:
                told = f"{part.what} ({part.size} bytes): changed, though it is there to be read"
            if told:
                raise ModuleFault(f"{call}: {told}", kind="fence")
