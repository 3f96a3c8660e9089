"""The commands, each imported when it runs: to list them or to complete a name takes none.

What the list says of a command is the docstring of its function, read from the source.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ... import plugins

#: Functions by the names of their commands, by the modules of `kvassay.cli` that have them. After
#: `gate` comes a command for each suite that is installed.
_COMMANDS: Final = {
    "explain": {"list": "list_all", "explain": "explain", "run": "run_task"},
    "gate": {"gate": "gate"},
    "conformance": {"conformance": "conformance"},
    "new_backend": {"new-backend": "new_backend"},
    "plan": {"plan": "plan"},
    "codecs": {"codecs": "compare"},
    "arms": {"arms": "arms"},
    "allocate": {"allocate": "allocate"},
    "fit": {"fit": "fit"},
    "compare": {"compare": "compare"},
    "history": {"history": "history"},
    "certify": {"certify": "certify_pass", "verify": "verify_certificate"},
    "capture": {"capture": "capture_tensors"},
    "golden_pack": {"golden-pack": "golden_pack"},
    "doctor": {"doctor": "examine", "schema": "schema"},
    "serve": {"serve": "serve"},
}
#: What only other programs call.
_HIDDEN: Final = frozenset(("run",))
_FOLDER: Final = Path(__file__).parents[1]


class _Listed(TyperCommand):
    """What a list says of a command."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The beginning of its help, read when it is asked for."""
        self.help = _text_of(self.name or "")
        return super().get_short_help_str(limit)


class Commands(TyperGroup):
    """All commands by name: no more than what a list says of them, until one is to run."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: _Listed(name, hidden=name in _HIDDEN) for name in command_names()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments begin with, whole, and the rest of them."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and whole_command(found.name or ""), rest


def whole_command(name: str) -> Any:
    """A command with its options, and a word for every value that its help names."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, help=_text_of(name), hidden=name in _HIDDEN)(_function(name))
    made: Any = typer.main.get_command(app)
    for parameter in made.params:
        if parameter.metavar is None and (word := _word_for(parameter)):
            parameter.metavar = word
            if parameter.param_type_name == "argument":  # typer puts it in braces else
                parameter._usage_display_name = partial(str, word)
    return made


def command_names() -> Iterator[str]:
    """Names of all commands, in the order of the list."""
    for module, functions in _COMMANDS.items():
        yield from functions
        if module == "gate":
            yield from plugins.names(plugins.SUITES)


def _text_of(name: str) -> str:
    """The help of a command."""
    for module, functions in _COMMANDS.items():
        if name in functions:
            return _docstrings(_FOLDER / f"{module}.py")[functions[name]]
    about = plugins.first_sentence(plugins.SUITES, name).rstrip(".")
    return f"{about}. This suite alone in full depth, judged by its own rules."


def _docstrings(source: Path) -> dict[str, str]:
    tree = ast.parse(source.read_bytes())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in functions}


def _function(name: str) -> Callable[..., int]:
    for module, functions in _COMMANDS.items():
        if name in functions:
            home = import_module(f"kvassay.cli.{module}")
            found: Callable[..., int] = getattr(home, functions[name])
            return found
    from ..gate import suite_command

    return suite_command(name)


def _word_for(parameter: Any) -> str | None:
    """What stands for a value in help, where typer would show braces or a type of Python."""
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper().replace("_", "-")
    if not parameter.multiple:
        return None
    annotation = str(parameter.type_descriptor.annotation)
    return "FILE" if "Path" in annotation else "N" if "int" in annotation else "NAME"
