"""The variants of the native library that ONNX Runtime can run here."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Final

from kvassay.errors import UnavailableError
from kvassay.protocol import Availability, Backend, BackendProvider

from ..native.backend import LibraryBackend
from ..native.provider import LibraryBackendProvider

#: The oldest ONNX Runtime whose interface has what the operators need (API 16).
OLDEST: Final = (1, 16)


class OrtBackendProvider(BackendProvider):
    """What the native backend offers, where the packages onnxruntime and onnx are there."""

    on_request = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._native = LibraryBackendProvider("native")
        self._loaded: dict[str, Backend] = {}

    def variants(self) -> Mapping[str, Availability]:
        states = self._native.variants()
        if self._missing is None:
            return dict(states)
        return {
            variant: self._missing if state.runs else state for variant, state in states.items()
        }

    @cached_property
    def _missing(self) -> Availability | None:
        absent = [name for name in ("onnxruntime", "onnx") if not importlib.util.find_spec(name)]
        if absent:
            names = " ".join(absent)
            return Availability("missing-package", f"no {names}: pip install {names}")
        found = re.match(r"(\d+)\.(\d+)", version("onnxruntime"))
        if found is None or (int(found[1]), int(found[2])) < OLDEST:
            return Availability(
                "missing-package",
                f"onnxruntime {version('onnxruntime')} is older than {OLDEST[0]}.{OLDEST[1]}: "
                "pip install -U onnxruntime",
            )
        return None

    def load(self, variant: str) -> Backend:
        state = self.variants().get(variant)
        if state is None or not state.runs:
            reason = f"{state.status}: {state.reason}" if state else "no such variant"
            raise UnavailableError(f"{self.name}, variant {variant!r}: {reason}")
        from .onnx_backend import OrtBackend  # it needs the packages

        if variant not in self._loaded:  # one a process: onnxruntime never forgets a session whole
            loaded = self._native.load(variant)
            assert isinstance(loaded, LibraryBackend)
            self._loaded[variant] = OrtBackend(self.name, loaded)
        return self._loaded[variant]
