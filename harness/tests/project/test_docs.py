"""The documents: links lead somewhere, Python in them compiles, the site builds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from kvassay.cli.parts.commands import command_names, whole_command

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = [
    *(ROOT / "README.md", ROOT / "ci" / "README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
#: Lines of blocks, indented or fenced; prose that starts a line with the name has a verb there.
_COMMAND: Final = re.compile(r"^(?:    )?kvassay (?!assays\b|-)([a-z].*)$", re.M)
_FENCE: Final = re.compile(r"^```.*?^```$", re.M | re.S)


def dead_links(page: Path, text: str) -> list[str]:
    """Links of a page to files or headings that are not there."""
    dead = []
    for link in _LINK.findall(_FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (heading and heading not in headings(target)):
            dead.append(link)
    return dead


def headings(page: Path) -> set[str]:
    """Anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_python(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not dead_links(page, text)
    for number, code in enumerate(_PYTHON.findall(text)):
        compile(code, f"{page.name}[{number}]", "exec")


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "# A title\n[here](#a-title) [not](#another) [gone](gone.md) [out](https://x.org)"
    page.write_text(text, encoding="utf-8")
    assert dead_links(page, text) == ["#another", "gone.md"]


def unknown_words(text: str) -> list[str]:
    """Commands of kvassay in blocks of a page, and options of theirs, that do not exist."""
    wrong: list[str] = []
    for line in _COMMAND.findall(text):
        words = re.split(r"\s{2,}|\s#", line)[0].replace("[", "").replace("]", "").split()
        for name in words[0].split("|"):
            known = whole_command(name) if name in command_names() else None
            options = {option for one in known.params for option in one.opts} if known else set()
            asked = {word.partition("=")[0] for word in words if word.startswith("-")}
            wrong += [f"kvassay {name}"] if known is None else sorted(asked - options)
    return wrong


def test_commands_and_options_in_blocks_exist() -> None:
    found = {str(page): unknown_words(page.read_text(encoding="utf-8")) for page in PAGES}
    assert not {page: wrong for page, wrong in found.items() if wrong}
    assert sum(len(_COMMAND.findall(page.read_text(encoding="utf-8"))) for page in PAGES) > 60
    text = (
        "    kvassay gaet  judge\nkvassay gate --bakcend x --quick   # why\nkvassay plan --json\n"
    )
    assert unknown_words(text) == ["kvassay gaet", "--bakcend"]


@pytest.mark.long
def test_the_site_builds_and_a_dead_link_stops_it(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed: the site was not built (pip install --group docs)")
    for name in ("docs", "harness", "backends", "suites"):
        (tmp_path / name).symlink_to(ROOT / name)
    config = tmp_path / "mkdocs.yml"
    shutil.copyfile(ROOT / "mkdocs.yml", config)
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d"]

    def build(site: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, str(site)], capture_output=True, text=True)

    done = build(tmp_path / "site")
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    for name in (
        *("kvassay.protocol.Backend", "kvassay_backends.lifecycle.LifecycleBackend"),
        *("kvassay.spec.Spec", "kvassay.vector_codec.VectorCodec", "kvassay.records.Record"),
        *("kvassay.backend.own_formats.OwnFormatBackend", "kvassay.statistics.holm.holm"),
        *("kvassay.captured.reader.open_captured", "kvassay.hf.cache.KvassayCache"),
        "kvassay.retrieval.index.Index",
    ):
        assert f'id="{name}"' in api, name
    (tmp_path / "docs").unlink()
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "docs" / "glossary.md").write_text("[gone](gone.md)", encoding="utf-8")
    done = build(tmp_path / "broken")
    assert done.returncode != 0
    assert "gone.md" in done.stderr
