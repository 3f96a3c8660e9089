"""What all tests of the harness share.

The last line of a test run says how many planted faults the gate caught.
"""

from __future__ import annotations

import pytest
from unrequired import nothing_required

__all__ = ["nothing_required"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What rejected each broken backend, and the mutation score, over all workers."""
    reports = [
        (report, dict(report.user_properties))
        for state in ("passed", "failed")
        for report in terminalreporter.stats.get(state, ())
        if report.when == "call"
    ]
    planted = [(report, found) for report, found in reports if "planted" in found]
    if not planted:
        return
    terminalreporter.section("planted faults")
    for _, found in planted:
        terminalreporter.write_line(f"{found['planted']}: {found.get('rejected by', 'not judged')}")
    caught = sum(report.passed for report, _ in planted)
    terminalreporter.write_line(f"mutation score of the gate: {caught} of {len(planted)}")
