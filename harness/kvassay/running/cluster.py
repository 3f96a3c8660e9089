"""A cluster of machines as an executor of tasks: `--dask tcp://scheduler:8786`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final

from ..backend.sources import code_digest
from ..errors import UnavailableError

#: Packages that must be the same everywhere, or tasks would answer another question.
_SAME: Final = ("kvassay", "kvassay_suites", "kvassay_backends")
_CONNECT_SECONDS: Final = 30.0


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """The workers of a dask.distributed scheduler.

    Raises UnavailableError where the package is missing, nobody answers, there is no worker, or a
    worker runs other code than this process.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UnavailableError(
            "--dask needs the package distributed: pip install 'kvassay[cluster]'"
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UnavailableError(f"--dask: no scheduler at {address!r}: {error}") from error
    with client:
        _require_same_code(client.run(code_here))
        yield client.get_executor(pure=False)


def code_here() -> dict[str, str]:
    """Digests of the packages that measure, in whatever process this runs."""
    return {name: code_digest(name) for name in _SAME}


def _require_same_code(workers: dict[str, dict[str, str]]) -> None:
    if not workers:
        raise UnavailableError("--dask: the scheduler has no worker; start one: dask worker")
    here = code_here()
    for worker, theirs in workers.items():
        for name in _SAME:
            if theirs[name] != here[name]:
                raise UnavailableError(
                    f"--dask: {worker} has other code of {name} than process {os.getpid()} here; "
                    "install the same kvassay everywhere"
                )
