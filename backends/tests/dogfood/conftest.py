"""The page as a folder, exported once."""

from __future__ import annotations

from pathlib import Path

import dogfood
import pytest

from kvassay.assets.files import write_files
from kvassay.cli.serve import page


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported page, without models of files."""
    dogfood.built()
    folder = tmp_path_factory.mktemp("page") / "site"
    write_files(page([]), folder)
    return folder
