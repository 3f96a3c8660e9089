"""Peers with faults, for the tests. Apart from these, so that their processes start fast."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from .cases import Case
from .inputs import Inputs
from .protocol import NotMeasured, Peer, Prepared, Result


class Planted(Peer):
    """A peer that does what its type says; it stands in for the real ones."""

    name = "planted"

    def types(self, case: Case) -> Mapping[str, float]:
        return dict.fromkeys(("right", "wrong", "missing", "raises"), 1e-3)

    def version(self) -> str:
        return "planted 1"

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        if type_ == "missing":
            raise NotMeasured("no such package")
        if type_ == "raises":
            raise ValueError("out of luck")
        return _Planted(inputs, type_)


class Dying(Planted):
    """One whose process ends in the middle of a run."""

    name = "dying"

    def types(self, case: Case) -> Mapping[str, float]:
        return {"dies": 1e-3}


class _Planted(Prepared):
    bytes = 64

    def __init__(self, inputs: Inputs, type_: str) -> None:
        self._inputs, self._type = inputs, type_

    def run(self) -> None:
        if self._type == "dies":
            os._exit(3)

    def result(self) -> Result:
        expected = self._inputs.expected.astype(np.float32)
        return expected * np.float32(2 if self._type == "wrong" else 1)


planted = Planted()
dying = Dying()
