"""Public names: they change only together with the kept list."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def listing() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "ci" / "public.py"))


def test_public_names_are_as_kept(listing: dict[str, Any]) -> None:
    kept = (ROOT / "docs" / "public.txt").read_text(encoding="utf-8")
    changed = listing["changes"](kept, listing["public"]())
    assert not changed, "public names changed; docs/stability.md says how:\n" + "\n".join(changed)


@pytest.mark.parametrize(
    "line",
    [
        "class kvassay.spec.Spec()",
        "kvassay.registry.load(",
        "kvassay.protocol.Cache.attend(",
        "kvassay_backends.lifecycle.LifecycleBackend.",
        "kvassay.h: #define KV_ABI_VERSION 1",
        "kvassay.h: int32_t kv_attend(",
        "kvassay.d.ts: export ",
        "kvassay gate --backend",
    ],
)
def test_every_surface_is_listed(line: str) -> None:
    kept = (ROOT / "docs" / "public.txt").read_text(encoding="utf-8").splitlines()
    assert any(one.startswith(line) for one in kept)


def test_what_is_gone_new_or_other_is_told(listing: dict[str, Any]) -> None:
    kept = "# Python\na.b(x: int)\na.c: int\n"
    assert listing["changes"](kept, kept) == []
    assert listing["changes"](kept, "# Python\na.b(x: float)\n") == [
        "-a.b(x: int)",
        "-a.c: int",
        "+a.b(x: float)",
    ]
