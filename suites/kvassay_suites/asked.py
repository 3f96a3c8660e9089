"""Brings the plugin along where pytest is told to run the suites, and does nothing elsewhere.

pytest loads this module in every run on a machine that has kvassay: it must stay small.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """Load the plugin for `--pyargs kvassay_suites` and parts of it; `-p kvassay` does as well."""
    if any(re.match(r"kvassay_suites\b", argument) for argument in args):
        early_config.pluginmanager.import_plugin("kvassay_suites.plugin")
