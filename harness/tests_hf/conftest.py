"""The model that every test of generation runs with."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_models import tiny


@pytest.fixture(params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest) -> Any:
    """One of a kind."""
    return tiny(request.param)
