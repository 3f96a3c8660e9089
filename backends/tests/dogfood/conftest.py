"""The page as a folder, exported once."""

from __future__ import annotations

from pathlib import Path

import dogfood
import pytest

from kvassay.assets.sites import export
from kvassay.cli.serve import page


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported page, without models of files."""
    dogfood.built()
    folder = tmp_path_factory.mktemp("page") / "site"
    export(page([]), folder)
    return folder
