"""Measure, print tables, keep records. `--from` makes the tables of earlier records again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvassay.errors import KvassayError
from kvassay.records import Record, RecordWriter, read_records
from kvassay.running.machine import machine_record
from kvassay.writing import check_outputs, write_text

from .cases import CASES, find_cases
from .session import NOT_MEASURED, PEERS, TIME, Plan, measure
from .tables import render
from .worker import CLOCKS


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if at least one peer was measured, 1 if none was, 2 for bad usage."""
    options = _parser().parse_args(arguments)
    try:
        earlier = {f"--from {path}": path for path in options.earlier or ()}
        check_outputs({"--records": options.records, "--table": options.table}, earlier)
        records = _earlier(options.earlier) if options.earlier else _measured(options)
        text = render(records)
        if options.table:
            write_text("tables", options.table, text)
    except (KvassayError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text, end="")
    if not any(record.check == TIME and record.detail["role"] == "peer" for record in records):
        print("error: no peer was measured", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument(
        "--case", action="append", default=[], metavar="NAME", help=f"of {', '.join(CASES)}"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn, at least")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME",
        help=f"of {', '.join(PEERS)}; the first is what others are compared with",
    )  # fmt: skip
    parser.add_argument("--records", type=Path, metavar="PATH", help="keep records, one a line")
    parser.add_argument("--json", action=_Renamed, help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, metavar="PATH", help="the tables as Markdown")
    parser.add_argument(
        "--from", dest="earlier", type=Path, nargs="+", metavar="PATH",
        help="measure nothing: tables of these records",
    )  # fmt: skip
    return parser


class _Renamed(argparse.Action):
    """An option that has another name now."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error("no option --json: it is --records FILE now")


def _earlier(paths: Sequence[Path]) -> list[Record]:
    return [record for path in paths for record in read_records(path)]


def _measured(options: argparse.Namespace) -> list[Record]:
    for name in options.peer:
        if name not in PEERS:
            raise KvassayError(f"no peer {name!r}; there are: {', '.join(PEERS)}")
    for name in ("rounds", "seconds", "threads"):
        values = getattr(options, name)
        if min(values if isinstance(values, list) else [values]) <= 0:
            raise KvassayError(f"--{name}: must be positive")
    plan = Plan(
        cases=find_cases(options.case),
        threads=options.threads,
        rounds=options.rounds,
        seconds=options.seconds,
        clock=options.clock,
        peers=[PEERS[name] for name in options.peer or PEERS],
    )
    if options.records is None:
        return list(_shown(plan))
    with RecordWriter(options.records) as writer:
        kept = []
        for record in _shown(plan):
            writer.write([record])
            kept.append(record)
        return kept


def _shown(plan: Plan) -> Iterator[Record]:
    """The records of a run, each named on standard error as it comes."""
    yield machine_record()
    for record in measure(plan):
        said = f"{record.value / 1e3:.4g} us"
        if record.check == NOT_MEASURED:
            said = f"not measured: {record.detail['reason']}"
        print(f"{record.subject}: {record.backend} {record.variant}: {said}", file=sys.stderr)
        yield record


if __name__ == "__main__":
    sys.exit(main())
