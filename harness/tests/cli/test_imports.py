"""What a prompt waits for imports nothing slow: `kvassay --help`, and names after TAB.

Held by what a child process imported, not by the clock: whatever runs beside it, the answer is the
same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

import kvassay
from kvassay import plugins
from kvassay.cli import run
from kvassay.cli.parts.commands import command_names
from kvassay.judging.rules import rulebook
from kvassay.model_names import INSTALLABLE, TINY
from kvassay.presets import PRESETS
from kvassay.skeletons.write import KINDS
from kvassay.streams import codec_names
from kvassay.vector_codec import codecs
from kvassay_backends.variants import names as variants

SLOW: Final = (
    *("numpy", "scipy", "matplotlib", "gguf", "tokenizers", "safetensors", "ml_dtypes", "psutil"),
    *("jinja2", "cffi", "pytest", "hypothesis", "wasmtime", "onnxruntime", "torch", "distributed"),
    *("transformers", "playwright", "multiprocessing", "asyncio", "kvassay_backends.native"),
    *("kvassay_backends.reference", "kvassay_backends.wasm"),
    *("kvassay.registry", "kvassay.protocol", "kvassay.running.runner"),
)
#: Runs a program, then says which modules of those given it imported: the last line it prints.
CHILD: Final = """
import json, sys
try:
    exec(sys.argv[1], {"given": json.loads(sys.argv[2])})
finally:
    print()
    print(*sorted(set(json.loads(sys.argv[3])) & set(sys.modules)))
"""
HELP: Final = "from kvassay.cli import run; run(['--help'])"
LIST: Final = "from kvassay.cli import run; run(['list'])"
COMPLETE: Final = """
import contextlib, os
from kvassay.cli import run
for words in given:
    os.environ["_KVASSAY_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = " ".join(("kvassay", *words, ""))
    os.environ["COMP_CWORD"] = str(1 + len(words))
    print("after", *words)
    with contextlib.suppress(SystemExit):  # which is how typer ends it
        run([])
"""
#: What is offered after these words.
OFFERED: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    (): tuple(name for name in command_names() if name != "run"),
    ("new-backend", "--kind"): KINDS,
    ("codecs", "--codec"): tuple(codecs()),
    ("plan", "--keys"): codec_names("keys"),
    ("plan", "--values"): codec_names("values"),
    ("plan", "--preset"): tuple(PRESETS),
    ("explain",): tuple(rule.name for rule in rulebook().rules),
    **{(name, "--model"): INSTALLABLE for name in ("arms", "allocate", "codecs", "gate", "plan")},
    ("capture", "x", "--model"): (*INSTALLABLE, *TINY),
    ("parity", "--backend"): plugins.names(plugins.BACKENDS),
    ("gate", "--suite"): plugins.names(plugins.SUITES),
    ("gate", "--variant"): variants,
}


def imported(program: str, given: object = None) -> tuple[list[str], set[str]]:
    """What a child printed, and what it imported of that which is slow."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, program, json.dumps(given), json.dumps(SLOW)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    *lines, slow = done.stdout.removesuffix("\n").split("\n")
    return [line for line in lines if line], set(slow.split())


def test_importing_the_package_is_quick_and_it_has_all_its_names() -> None:
    assert imported("import kvassay") == ([], set())
    assert {name: getattr(kvassay, name) for name in kvassay.__all__}
    assert set(kvassay.__all__) <= set(dir(kvassay))
    listed = "import kvassay; assert kvassay.registry.load is kvassay.load"
    assert "numpy" in imported(listed)[1]
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = kvassay.lod  # type: ignore[attr-defined]


def test_help_lists_every_command_and_imports_none() -> None:
    lines, slow = imported(HELP)
    listed = lines[lines.index("Commands:") + 1 :]
    assert tuple(line.split()[0] for line in listed) == OFFERED[()]
    assert all(len(line.split()) > 3 for line in listed)
    assert not slow


def test_names_are_offered_and_nothing_slow_is_imported() -> None:
    lines, slow = imported(COMPLETE, list(OFFERED))
    assert not slow
    wanted = [(f"after {' '.join(words)}".strip(), *names) for words, names in OFFERED.items()]
    assert lines == [line for lines in wanted for line in lines]


def test_every_variant_of_every_backend_is_offered() -> None:
    assert {variant for found in kvassay.backends().values() for variant in found} <= {*variants}


def test_what_is_slow_is_seen() -> None:
    """The same child does see what a command imports that asks the backends."""
    assert {"numpy", "kvassay.registry"} <= imported(LIST)[1]


def test_every_command_is_whole_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name in command_names():
        assert run([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"Usage: kvassay {name} "), said
        assert "--help" in said
