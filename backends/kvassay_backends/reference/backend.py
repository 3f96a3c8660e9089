"""The reference backend and its provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvassay.backend.checks import check_limit, check_spec
from kvassay.errors import InputError, UnknownBackendError
from kvassay.protocol import Availability, Backend, BackendProvider, Cache, Pool, Support
from kvassay.spec import Spec

from .cache import ReferenceCache
from .kernels import VARIANT
from .pool import ReferencePool


class ReferenceBackend(Backend):
    """The numeric contract in numpy, written for reading. Executes every spec."""

    name = "reference"
    variant = VARIANT
    shares = True

    def supports(self, spec: Spec) -> Support:
        check_spec(spec)
        return Support(True)

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        _check_threads(threads)
        check_spec(spec)
        return ReferenceCache(spec)

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        _check_threads(threads)
        check_spec(spec)
        return ReferenceCache.restored(spec, data)

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        _check_threads(threads)
        check_spec(spec)
        return ReferencePool(spec, check_limit(limit))


class ReferenceProvider(BackendProvider):
    """One variant, ready wherever numpy is."""

    name = "reference"

    def variants(self) -> Mapping[str, Availability]:
        return {VARIANT: Availability("ready")}

    def load(self, variant: str) -> Backend:
        if variant != VARIANT:
            raise UnknownBackendError(f"reference has no variant {variant!r}; it has {VARIANT!r}")
        return ReferenceBackend()


def _check_threads(threads: Any) -> None:
    """Threads divide nothing here, but a wrong number is wrong everywhere."""
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise InputError(f"threads: {threads!r} is not a positive integer")
