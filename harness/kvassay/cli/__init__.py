"""The command line: `kvassay list | gate | parity | correctness | memory | quality | retrieval |
performance | conformance | new-backend | compare | history | certify | verify | capture |
golden-pack | explain | plan | codecs | arms | allocate | fit | doctor | schema | serve`.

Exit status: 0 pass, 1 reject, 2 not measured or bad usage.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from .._version import __version__
from ..errors import KvassayError
from .parts.commands import Commands
from .parts.streams import open_streams
from .parts.terminal import Session, errors

#: What typer raises for bad usage; it has carried its own copy of click since 0.2x.
_USAGE_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]

#: Options by their names before 0.2, and what the commands that have such an option call it.
_RENAMED: Final = {"--json": "--records", "--results": "--answers", "--records": "--from"}

app = typer.Typer(
    name="kvassay",
    cls=Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvassay {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Assay quantized KV caches: correctness, parity, memory and quality, with a verdict."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; errors become one line on stderr."""
    session = Session()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = app(given or ["--help"], prog_name="kvassay", obj=session, standalone_mode=False)
        return int(status or 0) if given else 2
    except _USAGE_ERROR as error:
        say = getattr(error, "format_message", error.__str__)
        return _refuse(_renamed(error) or say() or "see kvassay --help", session)
    except KvassayError as error:
        return _refuse(str(error), session)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}", session)
    except (KeyboardInterrupt, typer.Abort):
        return _refuse("interrupted", session)


def _renamed(error: Exception) -> str:
    """What to write instead of an option that has another name now; "" for any other error."""
    old, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    now = _RENAMED.get(old, "")
    known = {name for one in context.command.params for name in one.opts} if context else ()
    return f"no option {old}: it is {now} FILE now" if now in known else ""


def main() -> None:
    """Entry point of the `kvassay` script."""
    open_streams()
    status = run()
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _refuse(f"standard output: {error.strerror}", Session())
    sys.exit(status)


def _refuse(message: str, session: Session) -> int:
    if session.verbose:
        errors().print(traceback.format_exc(), markup=False, style="dim")
    errors().print(f"error: {' '.join(message.split())}", markup=False, soft_wrap=True)
    return 2
