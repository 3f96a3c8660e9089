"""The command line: `kvassay list | gate | parity | correctness | memory | quality | retrieval |
performance | conformance | new-backend | compare | history | certify | verify | capture |
golden-pack | explain | plan | codecs | arms | allocate | doctor | schema | serve`.

Exit status: 0 pass, 1 reject, 2 not measured or bad usage.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated, Any, Final

import typer

from .._version import __version__
from ..errors import KvassayError
from . import (
    allocate as allocating,
)
from . import (
    arms,
    codecs,
    serve,
)
from . import (
    capture as capturing,
)
from . import (
    certify as certifying,
)
from . import (
    compare as comparing,
)
from . import (
    conformance as conforming,
)
from . import (
    doctor as examining,
)
from . import (
    explain as showing,
)
from . import (
    gate as judging,
)
from . import (
    golden_pack as packing,
)
from . import (
    history as historical,
)
from . import (
    new_backend as creating,
)
from . import (
    plan as planning,
)
from .parts.streams import open_streams
from .parts.terminal import Session, errors

#: What typer raises for bad usage; it has carried its own copy of click since 0.2x.
_USAGE_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="kvassay",
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


showing.add_to(app)
judging.add_to(app)
conforming.add_to(app)
creating.add_to(app)
planning.add_to(app)
codecs.add_to(app)
arms.add_to(app)
allocating.add_to(app)
comparing.add_to(app)
historical.add_to(app)
certifying.add_to(app)
capturing.add_to(app)
packing.add_to(app)
examining.add_to(app)
serve.add_to(app)


@cache
def command() -> Any:
    """The whole command line, with a word for every value that its help names."""
    made: Any = typer.main.get_command(app)
    for one in (made, *made.commands.values()):
        for parameter in one.params:
            if parameter.metavar is None and (word := _word_for(parameter)):
                parameter.metavar = word
                if parameter.param_type_name == "argument":  # typer puts it in braces else
                    parameter._usage_display_name = partial(str, word)
    return made


def _word_for(parameter: Any) -> str | None:
    """What stands for a value in help, where typer would show braces or a type of Python."""
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper().replace("_", "-")
    if not parameter.multiple:
        return None
    annotation = str(parameter.type_descriptor.annotation)
    return "FILE" if "Path" in annotation else "N" if "int" in annotation else "NAME"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; errors become one line on stderr."""
    session = Session()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = command()(given or ["--help"], "kvassay", obj=session, standalone_mode=False)
        return int(status or 0) if given else 2
    except _USAGE_ERROR as error:
        say = getattr(error, "format_message", error.__str__)
        return _refuse(say() or "see kvassay --help", session)
    except KvassayError as error:
        return _refuse(str(error), session)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}", session)
    except (KeyboardInterrupt, typer.Abort):
        return _refuse("interrupted", session)


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
