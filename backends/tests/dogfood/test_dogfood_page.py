"""The page by clicks, in a real Chromium: suites, session, every button, phone width, any path.

Needs playwright and a Chromium (KVASSAY_CHROMIUM names another than the one on the path).
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dogfood
import pytest
from dogfood import Visit

from kvassay import models
from kvassay.assets.siteserver import SiteServer
from kvassay.cli.serve import page
from kvassay.errors import ModelError

pytestmark = pytest.mark.long

MINUTES = 60_000  # in milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with dogfood.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of the page, with the real model where it is installed."""
    dogfood.built()
    try:
        offered = [models.find_default()]
    except ModelError:
        offered = []
    with SiteServer(page(offered)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.url
        server.shutdown()


@contextmanager
def visiting(browser: Any, url: str, **options: Any) -> Iterator[Visit]:
    """A page with its session open; at its end there were no errors and no foreign requests."""
    visit = Visit(browser, url, **options)
    try:
        visit.open()
        yield visit
        assert visit.complaints == []
    finally:
        visit.page.close()


def test_the_suites_run_to_a_green_result(browser: Any, address: str) -> None:
    with visiting(browser, address) as visit:
        assert visit.text("#verdict") == "Not measured"
        visit.run_suites()
        assert visit.text("#verdict") == "Pass on this device", visit.text("#assay")
        for name in dogfood.built():
            assert f"{name}" in visit.text("#verdict-note")
        note = visit.text("#verdict-note")
        assert " 0 differ" in note
        assert " 0 growths after the first" in note
        rules, variants = visit.page.locator("#results table").all()
        assert rules.locator(".chip.pass").count() == 4 * len(dogfood.built())
        assert rules.locator(".chip").count() == 4 * len(dogfood.built())
        assert variants.locator(".chip.ready").count() == len(dogfood.built())
        assert visit.page.locator("#results .cell.pass").count() == 15 * len(dogfood.built())
        assert visit.page.locator("#results .cell:not(.pass)").count() == 0
        titles = visit.page.locator("#results figure strong").all_inner_texts()
        assert [title for title in titles if title.startswith("Attention")] == [
            "Attention, turbo", "Attention, kivi", "Attention, fp16",
        ]  # fmt: skip
        assert "Linear memory over sessions" in titles


def test_one_wrong_bit_in_a_golden_cache_is_a_reject_that_names_it(
    browser: Any, address: str
) -> None:
    def flip(route: Any) -> None:
        answer = route.fetch()
        body = bytearray(answer.body())
        body[-100] ^= 1
        route.fulfill(response=answer, body=bytes(body))

    with visiting(browser, address) as visit:
        visit.page.route("**/golden/product.outputs", flip)
        visit.run_suites()
        assert visit.text("#verdict") == "Reject on this device"
        evidence = visit.text("#faults")
        assert "product" in evidence
        assert "outputs of layer 0, byte" in evidence
        assert visit.page.locator("#results .cell.reject").count() == len(dogfood.built())


def test_missing_golden_caches_are_an_error_and_never_a_pass(browser: Any, address: str) -> None:
    visit = Visit(browser, address)
    visit.open()
    visit.page.route("**/golden/index.json", lambda route: route.fulfill(status=404, body="gone"))
    visit.run_suites()
    assert visit.text("#verdict") == "The suites could not run"
    assert "golden/index.json cannot be read: 404" in visit.text("#verdict-note")
    visit.page.close()


def test_a_conversation_and_what_every_button_does(browser: Any, address: str) -> None:
    with visiting(browser, address) as visit:
        visit.choose("limit", "16")
        visit.say("Hello there")
        assert visit.page.locator("#log .person").inner_text() == "Hello there"
        assert visit.page.locator("#log .model").inner_text()
        assert visit.facts()["Tokens held"].startswith("27\n")
        identity = visit.facts()["Identity"]

        assert "Read 675 tokens of sample text" in visit.press("feed")
        assert visit.facts()["Tokens held"].startswith("702\n8 live pages")
        held = visit.facts()["Bytes held"]
        assert int(held.split("\n")[1].removesuffix(" % of fp16")) < 60

        assert "Identical: all" in visit.press("check")
        assert "nearest allowed lengths" in visit.press("forget")
        assert visit.facts()["Tokens held"].startswith("27\n")
        assert visit.page.locator("#log .turn").count() == 1

        assert "byte for byte the same as a newly made cache" in visit.press("reset")
        assert visit.facts()["Tokens held"].startswith("0\n")
        assert visit.page.locator("#log .turn").count() == 0

        visit.press("feed")
        told = visit.choose("span", "128")
        assert told.startswith("refused: span")
        assert "The 674 tokens were computed again." in told
        assert "\n0 live pages" in visit.facts()["Tokens held"]
        assert visit.facts()["Identity"] != identity

        told = visit.choose("preset", "fp16")
        assert told.startswith("refused: key_centre")
        told = visit.choose("model", "tiny-mha")
        assert told.startswith("refused: identity.model")
        assert "Started clean" in told
        assert visit.facts()["Tokens held"].startswith("0\n")
        assert "tiny-mha" in visit.facts()["Identity"]

        visit.say("Hello again")
        told = visit.choose("variant", "scalar")
        assert "carried over" in told
        assert "scalar" in visit.facts()["Identity"]

        visit.page.uncheck("#reuse")
        visit.say("And again")
        assert "nothing was reused" in visit.text("#outcome")
        assert "old cache was closed" in visit.press("new")
        assert visit.facts()["Tokens held"].startswith("0\n")

        table = visit.text("#history")
        for action in (
            "New session",
            "Send",
            "Variant: scalar",
            "Model: tiny: 4 heads (MHA)",
            "Reset",
        ):
            assert action in table


def test_linear_memory_does_not_grow_over_sessions(browser: Any, address: str) -> None:
    with visiting(browser, address) as visit:
        visit.press("feed")
        visit.press("new")
        visit.press("feed")
        before = visit.facts()["Linear memory"]
        for _ in range(3):
            visit.press("reset")
            visit.press("feed")
            visit.press("new")
            visit.press("feed")
        assert visit.facts()["Linear memory"] == before


def test_an_answer_can_be_stopped(browser: Any, address: str) -> None:
    with visiting(browser, address) as visit:
        visit.choose("limit", "256")
        visit.page.fill("#text", "Go on for ever")
        visit.page.click("#send")
        visit.page.click("#stop", timeout=MINUTES)
        visit.idle()
        assert int(visit.facts()["Tokens held"].split("\n")[0]) < 15 + 256
        assert "wrote" in visit.text("#outcome")


def test_the_keyboard_is_enough(browser: Any, address: str) -> None:
    with visiting(browser, address) as visit:
        keyboard = visit.page.keyboard
        visit.page.focus("#text")
        keyboard.type("One line")
        keyboard.press("Shift+Enter")
        keyboard.type("and another")
        keyboard.press("Enter")
        visit.idle()
        assert visit.page.locator("#log .person").inner_text() == "One line\nand another"
        keyboard.press("Tab")  # the field has the focus again
        assert visit.page.locator("#send").and_(visit.page.locator(":focus")).count() == 1
        for _ in ("new session", "reset", "forget"):  # "stop" is disabled
            keyboard.press("Tab")
        keyboard.press("Enter")
        visit.idle()
        assert visit.text("#outcome") == "Cut to 0 tokens."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_on_a_phone(browser: Any, address: str, scheme: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme, "bypass_csp": True}
    with visiting(browser, address, **phone) as visit:
        visit.press("feed")
        visit.choose("span", "128")
        wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert visit.page.evaluate(wide) == 0
        dark = "() => getComputedStyle(document.body).backgroundColor"
        assert (visit.page.evaluate(dark) == "rgb(18, 21, 26)") == (scheme == "dark")


def test_it_works_below_any_path_of_a_plain_web_server(browser: Any, site: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with visiting(browser, f"http://127.0.0.1:{server.server_port}/{site.name}/") as visit:
            visit.say("Hello")
            visit.run_suites()
            assert visit.text("#verdict") == "Pass on this device"
        server.shutdown()


@pytest.mark.model
def test_the_real_model_answers(browser: Any, address: str) -> None:
    with visiting(browser, address) as visit:
        told = visit.choose("model", models.find_default().stem)
        assert "is ready with an empty cache" in told
        visit.choose("limit", "16")
        visit.say("What is the capital of France?")
        assert "Paris" in visit.page.locator("#log .model").inner_text()
        visit.say("And of Italy?")
        assert "Rome" in visit.page.locator("#log .model").last.inner_text()
        assert "tokens were reused" in visit.text("#outcome")
