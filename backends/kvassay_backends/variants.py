"""Names of the variants that the shipped backends may have, for a shell that completes them: where
they run here only the backends know, whose import takes seconds."""

from __future__ import annotations

import runpy
from pathlib import Path

_ISAS = runpy.run_path(str(Path(__file__).with_name("native") / "isas.py"))["ISAS"]

#: Each once, in the order of the tables of instruction sets.
names: tuple[str, ...] = tuple(dict.fromkeys(name for isas in _ISAS.values() for name in isas))
