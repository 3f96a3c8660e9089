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
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "ci/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
#: Lines of blocks, indented or fenced; prose that starts a line with the name has a verb there.
_COMMAND: Final = re.compile(r"^(?:    )?kvassay (?!assays\b|-)([a-z].*)$", re.M)
#: Files in prose, or run by a line of a block.
_FILE: Final = re.compile(
    r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|c|h|toml|rs|mjs|md|sh|ts|json|txt))`"
    r"|^\s*python ((?:[\w-]+/)+[\w.-]+\.py)",
    re.M,
)
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


def missing_files(text: str, present: list[str]) -> list[str]:
    """Files that a page names and that end no path of the repository."""
    named = [prose or run for prose, run in _FILE.findall(text)]
    return [name for name in named if not any(f"/{one}".endswith(f"/{name}") for one in present)]


def test_files_named_in_the_documents_exist() -> None:
    roots = ("harness", "backends", "suites", "docs", "ci")
    present = [str(path.relative_to(ROOT)) for root in roots for path in (ROOT / root).rglob("*.*")]
    found = {page.name: missing_files(page.read_text(encoding="utf-8"), present) for page in PAGES}
    assert not {page: missing for page, missing in found.items() if missing}
    text = "see `core/attend/attend.c`, `core/gone.c`\n    python ci/tables.py\npython ci/gone.py"
    assert missing_files(text, present) == ["core/gone.c", "ci/gone.py"]


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
