"""Calls a function in a fresh process: what it measures is not what an earlier one left behind."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from kvassay.errors import KvassayError

_STDERR_TAIL: Final = 2000


class ChildError(KvassayError):
    """The fresh process died, or the function in it raised; the message holds its last words."""


def call_fresh(function: str, arguments: Mapping[str, Any], **environment: str) -> Any:
    """`module:name` called with plain data in a new Python process; its result as plain data.

    The process sees the same modules as this one, and `environment` on top of the variables.
    Raises ChildError if it ends without a result.
    """
    request = {"path": sys.path, "function": function, "arguments": dict(arguments)}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(request).encode(),
        capture_output=True,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace")[-_STDERR_TAIL:].strip()
        raise ChildError(f"{function} in a fresh process: exit status {done.returncode}: {tail}")
    return json.loads(done.stdout)


def _main() -> None:
    """Answer the request on standard input; whatever else is printed goes to standard error."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    module, _, name = request["function"].partition(":")
    result = getattr(importlib.import_module(module), name)(**request["arguments"])
    json.dump(result, answer)
    answer.close()


if __name__ == "__main__":
    _main()
