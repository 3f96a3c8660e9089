"""`kvassay certify` and `kvassay verify`: a pass on record, and that record checked again."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from ..errors import KvassayError
from ..judging.certificate import certify, read_certificate, verify, write_certificate
from ..judging.gate import PASS, REJECT, UNJUDGED
from ..judging.rules import Scope
from ..running.targets import look_here
from ..writing import check_outputs
from .parts.terminal import Verbose, output

_STYLE = {"holds": "green", "differs": "bold red", "not checked": "yellow"}


def certify_pass(
    records: Annotated[Path, typer.Argument(help="Records of the run, as the gate wrote them.")],
    out: Annotated[Path, typer.Option("--out", help="Where the certificate goes.")] = Path(
        "certificate.json"
    ),
    by: Annotated[str, typer.Option("--by", help="Who signs it off (default: you).")] = "",
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="Judge by this scope (default: the run's).")
    ] = None,
    verbose: Verbose = False,
) -> int:
    """Write a certificate of a pass: inputs, builds, digests, verdicts. Refused for all else."""
    check_outputs({"--out": out}, {"the records": records})
    certificate = certify(records, by or _user(), scope)
    write_certificate(out, certificate)
    passed = sum(v["decision"] == "PASS" for v in certificate["verdicts"])
    output().print(
        f"certificate: {out} ({passed} of {len(certificate['verdicts'])} verdicts pass, scope "
        f"{certificate['question']['scope']}, records {certificate['records']['sha256'][:12]})",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    return PASS


def verify_certificate(
    certificate: Annotated[Path, typer.Argument(help="What `kvassay certify` wrote.")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="The records (default: by their name beside it)."),
    ] = None,
    installed: Annotated[
        bool, typer.Option("--installed", help="The builds installed here must be those judged.")
    ] = False,
    verbose: Verbose = False,
) -> int:
    """Check a certificate again.

    Exit status: 0 all of it holds, 1 something differs, 2 --installed could not check a build.
    """
    found = read_certificate(certificate)
    source = source or certificate.parent / found["records"]["name"]
    if not source.is_file():
        raise KvassayError(f"no records at {source}, without which nothing is checked; --from FILE")
    if installed:
        look_here(backend for backend, _, _ in found["builds"])
    checks = verify(found, source, installed)
    for check in checks:
        style = _STYLE[check.state]
        output().print(f"{check.state:<12}{check.what}: {check.note}", style=style, markup=False)
    states = {check.state for check in checks if check.demanded}
    return REJECT if "differs" in states else UNJUDGED if "not checked" in states else PASS


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's user may have no name
        raise KvassayError("this user has no name; say who signs: --by NAME") from error
