"""`kvassay serve`: what it answers, what it refuses, the folder it writes."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kvassay import plugins
from kvassay.assets.files import Files, site, write_files
from kvassay.assets.siteserver import SiteServer
from kvassay.cli import run
from kvassay.errors import RegistryError, UnavailableError, WriteError

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SiteServer]:
    """A server of four files, one of them on disk beside one that must not be reached."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "open.wasm").write_bytes(b"\0asm")
    files: Files = {
        "index.html": b"<!doctype html>",
        "app.mjs": b"1",
        "deep/data.json": b"{}",
        "host/open.wasm": tmp_path / "open.wasm",
        "gone.css": tmp_path / "gone.css",
    }
    with SiteServer(files) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()


def ask(
    server: SiteServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type", ""), answer.read()
    connection.close()
    return found


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", b"<!doctype html>"),
        ("/index.html?x=1", "text/html; charset=utf-8", b"<!doctype html>"),
        ("/app.mjs", "text/javascript; charset=utf-8", b"1"),
        ("/deep/data.json", "application/json", b"{}"),
        ("/host/open.wasm", "application/wasm", b"\0asm"),
        ("/%61pp.mjs", "text/javascript; charset=utf-8", b"1"),
    ],
)
def test_files_come_with_their_types(server: SiteServer, path: str, kind: str, body: bytes) -> None:
    assert ask(server, path) == (200, kind, body)
    assert ask(server, path, "HEAD") == (200, kind, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/secret", "/../secret", "/host/../../secret", "/host/%2e%2e/%2e%2e/secret", "//secret",
        "/..%2fsecret", "/host\\..\\secret", "/deep", "/deep/", "/gone.css", "/app.mjs%00",
    ],
)  # fmt: skip
def test_nothing_else_exists(server: SiteServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_writing_is_not_possible(server: SiteServer) -> None:
    assert ask(server, "/app.mjs", "PUT")[0] == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:5", 200), ("evil.example", 421), ("", 421)],
)
def test_on_loopback_only_names_of_loopback_are_answered(
    server: SiteServer, host: str, status: int
) -> None:
    assert ask(server, "/", Host=host)[0] == status


def test_a_port_in_use_is_one_line(server: SiteServer, capsys: Capture) -> None:
    assert run(["serve", "--port", str(server.server_port)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"cannot serve at 127.0.0.1:{server.server_port}" in error
    assert "--port" in error


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "is not a file"), (b"GGML....", "is not a GGUF file")]
)
def test_a_model_that_is_none_is_refused(
    tmp_path: Path, capsys: Capture, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    assert run(["serve", "--model", str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_two_models_of_one_name_are_refused(tmp_path: Path, capsys: Capture) -> None:
    paths = [tmp_path / folder / "m.gguf" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(b"GGUF")
    assert run(["serve", "--model", str(paths[0]), "--model", str(paths[1])]) == 2
    assert "two files are called m.gguf" in capsys.readouterr().err


def test_the_exported_folder_is_whole(tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "my model.gguf"
    model.write_bytes(b"GGUF")
    folder = tmp_path / "out"
    assert run(["serve", "--model", str(model), "--export", str(folder)]) == 0
    assert re.search(r"out: \d+ files", capsys.readouterr().out)
    assert (folder / "index.html").is_file()
    assert (folder / "host" / "kvassay.mjs").is_file()
    (listed,) = json.loads((folder / "models.json").read_text())
    assert listed == {"name": "my model", "file": "models/my_model.gguf", "bytes": 4}
    assert (folder / listed["file"]).read_bytes() == b"GGUF"
    rules = {rule["name"]: rule for rule in json.loads((folder / "rules.json").read_text())}
    assert rules["wasm.growth_events"]["maximum"] == 0
    assert run(["serve", "--export", str(folder)]) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_every_module_that_a_page_imports_is_exported(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run(["serve", "--export", str(folder)]) == 0
    imported = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""")
    scripts = list(folder.rglob("*.mjs"))
    assert len(scripts) > 20
    for script in scripts:
        for name in imported.findall(script.read_text()):
            assert (script.parent / name).is_file(), f"{script.name} imports {name}"


def test_nothing_on_the_page_comes_from_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run(["serve", "--export", str(folder)]) == 0
    allowed = ("http://www.w3.org/2000/svg",)
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".css", ".mjs"):
            for url in re.findall(r"https?://[^\s\"'`)]+", path.read_text()):
                assert url in allowed, f"{path.name}: {url}"


def _points(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    class Point(EntryPoint):
        def load(self) -> Any:
            if isinstance(found[self.name], Exception):
                raise found[self.name]
            return lambda: found[self.name]

    points = tuple(Point(name, "x:y", plugins.SITES) for name in sorted(found))
    monkeypatch.setattr(plugins, "points", lambda group: points)


def test_sites_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, b={"x.json": b"2"}, a={"index.html": b"1"})
    assert site() == {"index.html": b"1", "x.json": b"2"}


def test_two_sites_with_one_path_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, a={"index.html": b"1"}, b={"index.html": b"2"})
    with pytest.raises(RegistryError, match=r"site 'b': 'index\.html'"):
        site()


def test_a_site_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, a=ImportError("no module x"))
    with pytest.raises(
        RegistryError, match="site 'a': importing x:y raised ImportError: no module x"
    ):
        site()


def test_without_a_page_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, a={"x.json": b"2"})
    with pytest.raises(UnavailableError, match="no installed package brings a page"):
        site()


def test_export_into_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(WriteError, match="not an empty folder"):
        write_files({"index.html": b""}, path)
    assert path.read_text() == "mine"


@pytest.mark.skipif(sys.platform == "win32", reason="ends the server by SIGINT")
def test_it_prints_its_address_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    # Tests in the background of a shell, and what they start, would ignore the signal.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from kvassay.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "serve", "--port", "0", "--model", str(model)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.match(r"http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)", line)
    assert found, line
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
    connection.request("GET", "/models/m.gguf")
    assert connection.getresponse().read() == b"GGUF"
    connection.close()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)
    assert (process.returncode, rest) == (0, "ended\n")
