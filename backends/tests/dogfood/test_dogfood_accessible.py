"""The page, a report and a history by axe: no serious finding, at every width, in both colours.

Needs playwright, axe-playwright-python and a Chromium (KVASSAY_CHROMIUM names another one).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import dogfood
import pytest
from synthetic import good_records, question

from kvassay.assets.siteserver import SiteServer
from kvassay.cli.serve import page
from kvassay.judging.gate import judge
from kvassay.report import write_report

pytestmark = pytest.mark.long
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

GRAVE: Final = {"serious", "critical"}
WIDTHS: Final = (1280, 360)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with dogfood.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The page of `kvassay serve` and a report of a whole run."""
    dogfood.built()
    report = tmp_path_factory.mktemp("report") / "report.html"
    records = good_records()
    write_report(report, judge(records, question()), records)
    with SiteServer(page([])) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"serve": server.url, "report": report.as_uri()}
        server.shutdown()


def findings(tab: Any) -> list[str]:
    """What axe says that keeps somebody from using the page."""
    found = axe.Axe().run(tab).response
    assert len(found["passes"]) > 5, "axe looked at nothing"
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in GRAVE
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["serve", "report"])
def test_nobody_is_kept_out(
    browser: Any, addresses: dict[str, str], name: str, width: int, colours: str
) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
    tab.goto(addresses[name])
    tab.wait_for_load_state("networkidle")
    assert findings(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


@pytest.mark.parametrize("name", ["serve", "report"])
def test_everything_that_acts_is_reached_by_tab(
    browser: Any, addresses: dict[str, str], name: str
) -> None:
    tab = browser.new_page(viewport={"width": 360, "height": 800})
    tab.goto(addresses[name])
    tab.wait_for_load_state("networkidle")
    wanted = tab.evaluate(
        "[...document.querySelectorAll("
        "'button, a[href], summary, input, select, [tabindex=\"0\"]')]"
        ".filter((e) => !e.disabled && e.checkVisibility()).length"
    )
    assert wanted > 0
    for _ in range(wanted):
        tab.keyboard.press("Tab")
        tab.evaluate("document.activeElement.dataset.reached = ''")
    reached = tab.evaluate("document.querySelectorAll('[data-reached]').length")
    assert reached >= wanted
    tab.close()


def test_a_button_without_a_name_is_found(browser: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><html lang=en><title>bad</title><main><h1>bad</h1><p>text</p>"
        "<button></button></main></html>",
        encoding="utf-8",
    )
    tab = browser.new_page()
    tab.goto(bad.as_uri())
    assert [one.partition(":")[0] for one in findings(tab)] == ["button-name"]
    tab.close()
