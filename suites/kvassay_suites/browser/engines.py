"""JavaScript engines of this machine: where they are, and how each is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kvassay.assets.web import WebAssets

from .link import EngineError, Link

PAGE: Final = Path(__file__).resolve().parent / "page"
#: Engines in which a page runs; Node has none, and is judged beside them.
BROWSERS: Final = ("chromium", "firefox")
#: Variable that names an engine's program, and where it is looked for otherwise.
_PROGRAMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "chromium": ("KVASSAY_CHROMIUM", ("chromium", "chromium-browser", "google-chrome")),
    "firefox": ("KVASSAY_FIREFOX", ("firefox-esr", "firefox")),
    "node": ("KVASSAY_NODE", ("node", "nodejs")),
}
ENGINES: Final = tuple(_PROGRAMS)
_LEAST_NODE: Final = 20
#: Node 20 knows relaxed SIMD behind a flag; later ones by default.
_RELAXED_FLAG: Final = "--experimental-wasm-relaxed-simd"


@dataclass(frozen=True)
class Engine:
    """An engine and its program; `reason` says why it cannot run, "" if it can.

    `options` are for its command line.
    """

    name: str
    program: str
    version: str = ""
    reason: str = ""
    options: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        """The first number of the version, 0 if unknown."""
        return int(self.version.partition(".")[0] or 0)

    @property
    def label(self) -> str:
        """For records: name, version and options."""
        return " ".join(filter(None, (self.name, self.version, *self.options)))


def candidates(name: str, variant: str) -> list[Engine]:
    """The ways to start an engine for a variant, the plainest first; each with its `reason`."""
    engine = _find(name)
    if name != "node" or engine.reason or variant != "relaxed" or engine.major > _LEAST_NODE:
        return [engine]
    # V8 of Node 20 computes the relaxed dot wrongly until its second compiler takes over.
    return [
        replace(engine, options=(_RELAXED_FLAG,)),
        replace(engine, options=(_RELAXED_FLAG, "--no-liftoff")),
    ]


def _find(name: str) -> Engine:
    variable, programs = _PROGRAMS[name]
    wanted = os.environ.get(variable)
    found = map(shutil.which, [wanted] if wanted else programs)
    program = next(filter(None, found), "")
    if not program:
        tried = f"{variable}={wanted}" if wanted else ", ".join(programs)
        return Engine(name, "", reason=f"no {name}: {tried} not found; set {variable} to its path")
    engine = Engine(name, program, _version_of(program))
    if name == "chromium" and importlib.util.find_spec("playwright") is None:
        return replace(engine, reason="playwright drives it: pip install 'kvassay[browser]'")
    if name == "node" and engine.major < _LEAST_NODE:
        return replace(engine, reason=f"Node {engine.version} is older than {_LEAST_NODE}")
    return engine


def _version_of(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.replace("v", " ").split()
    return next((word for word in words if word[0].isdigit()), "")


@contextmanager
def running(engine: Engine, assets: WebAssets) -> Iterator[Link]:
    """The engine, started and waiting for commands. Raises EngineError if it does not come up."""
    if engine.reason:
        raise EngineError(engine.reason)
    folders = {"page": PAGE, "host": assets.host, "modules": assets.folder}
    with ExitStack() as stack:
        link = stack.enter_context(Link(folders))
        link.alive = stack.enter_context(_STARTERS[engine.name](engine, link, assets))
        stack.callback(link.stop)
        link.greet()
        yield link


@contextmanager
def _chromium(engine: Engine, link: Link, assets: WebAssets) -> Iterator[Callable[[], str]]:
    from playwright.sync_api import Error, sync_playwright

    # A container's root has no namespaces for Chromium's sandbox; the pages are our own.
    sandbox = not (hasattr(os, "geteuid") and os.geteuid() == 0)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=engine.program, chromium_sandbox=sandbox, args=[*engine.options]
            )
        except Error as error:
            raise EngineError(f"chromium does not start: {error}") from None
        page = browser.new_page()
        said: list[str] = []
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("crash", lambda _: said.append("the page crashed"))
        page.goto(f"{link.root}page/index.html")

        def alive() -> str:
            try:
                text = page.locator("#state").text_content(timeout=5000) or ""
            except Error as error:
                return str(error)
            return "; ".join([*said, *([text] if text.startswith("failed") else [])])

        try:
            yield alive
        finally:
            browser.close()


@contextmanager
def _firefox(engine: Engine, link: Link, assets: WebAssets) -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [engine.program, "--headless", "--no-remote", "--profile", profile]
        with _process([*command, *engine.options, f"{link.root}page/index.html"]) as alive:
            yield alive


@contextmanager
def _node(engine: Engine, link: Link, assets: WebAssets) -> Iterator[Callable[[], str]]:
    script = [str(PAGE / "node.mjs"), f"{link.root}page/", str(assets.host), str(assets.folder)]
    with _process([engine.program, *engine.options, *script]) as alive:
        yield alive


@contextmanager
def _process(command: list[str]) -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )

        def alive() -> str:
            if process.poll() is None:
                return ""
            output.seek(0)
            words = output.read()[-2000:].decode(errors="replace").strip()
            return f"exit status {process.returncode}: {words}"

        try:
            yield alive
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It was told to stop; some must be told harder."""
    for harder in (process.terminate, process.kill):
        try:
            process.wait(3)
            return
        except subprocess.TimeoutExpired:
            harder()
    process.wait()


_STARTERS: Final[Mapping[str, Any]] = {
    "chromium": _chromium,
    "firefox": _firefox,
    "node": _node,
}
