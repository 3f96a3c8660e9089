"""Markdown tables, made from records alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kvassay.records import Record

from .cases import CASES, Case
from .results import Figure, Results
from .targets import TARGETS

_NONE: Final = "-"


def render(records: Iterable[Record]) -> str:
    """Every case, then the targets, then what was not measured."""
    results = Results(records)
    parts = [
        _case(results, case) for case in CASES.values() if any(f.case == case.name for f in results)
    ]
    parts += [_targets(results), _missing(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _case(results: Results, case: Case) -> str:
    """One row an entrant, fastest first; for each number of threads its median and ratio."""
    counts = sorted({f.threads for f in results if f.case == case.name})
    head = ["peer, type"]
    for threads in counts:
        head += [f"us, threads {threads}", "times ours [95 %]"]
    head += ["2 threads over 1"] if counts == [1, 2] else []
    head += ["MB", "GB/s", "error"]
    rows = [
        _row(results, [f for f in group if f is not None], counts)
        for group in _entrants(results, case.name, counts)
    ]
    notes = _notes(results, case.name)
    clocks = {f.detail["clock"] for f in results if f.case == case.name}
    clock = " Processor time." if clocks == {"cpu"} else ""
    return f"**{case.name}**: {case.what}.{clock}\n\n{_table(head, rows)}{notes}"


def _entrants(results: Results, case: str, counts: Sequence[int]) -> Iterator[list[Figure]]:
    """The figures of each entrant, in the order of the first number of threads."""
    everyone = [f for threads in counts for f in results.of(case, threads)]
    for name in dict.fromkeys(f.name for f in everyone):
        yield [f for f in everyone if f.name == name]


def _row(results: Results, figures: Sequence[Figure], counts: Sequence[int]) -> list[str]:
    by_threads = {f.threads: f for f in figures}
    first = figures[0]
    row = [first.name]
    for threads in counts:
        found = by_threads.get(threads)
        row += [_us(found), _ratio(found, results.base(first.case, threads))]
    if list(counts) == [1, 2]:
        scaling = by_threads[1].over(by_threads[2]) if len(by_threads) == 2 else None
        row.append(f"{scaling.median:.2f}" if scaling else _NONE)
    rate = first.bytes_per_second
    row += [f"{first.detail['bytes'] / 1e6:.2f}" if rate else _NONE]
    row += [f"{rate / 1e9:.1f}" if rate else _NONE, f"{first.detail['error']:.1e}"]
    return row


def _us(figure: Figure | None) -> str:
    return _NONE if figure is None else f"{figure.ns / 1e3:.4g}"


def _ratio(figure: Figure | None, base: Figure | None) -> str:
    ratio = figure.over(base) if figure and base else None
    if ratio is None:
        return _NONE
    interval = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.confidence >= 0.95 else ""
    return f"{ratio.median:.2f}{interval}"


def _notes(results: Results, case: str) -> str:
    lines = [
        f"{f.name}, threads {f.threads}: "
        + ", ".join(f"{name.removesuffix('_ns')} {ns / 1e3:.1f} us" for name, ns in notes.items())
        for f in results
        if f.case == case and (notes := f.detail.get("notes"))
    ]
    return "".join(f"\n\n{line}." for line in lines)


def _targets(results: Results) -> str:
    """Each target with what was found; the variant is that of the case's base."""
    variants = {f.type.rpartition(" ")[2] for f in results if f.detail["base"]}
    if len(variants) != 1:
        return ""
    (variant,) = variants
    rows: list[list[str]] = []
    unknown: list[str] = []
    for target in TARGETS:
        found = target.measure(results)
        if found is None:
            unknown.append(target.what)
            continue
        value, against = found
        verdict = "reached" if target.reached(value, variant) else "**not reached**"
        sign = "<=" if target.at_most else ">="
        limits = (f"{sign} {limit:g}" for limit in (target.needed, target.owed(variant)))
        rows.append([target.what, *limits, f"{value:.2f}", against, verdict])
    head = ["target", "AVX-512", f"{variant} owes", "found", "against", "verdict"]
    rest = f"\n\nTargets not measured: {'; '.join(unknown)}." if unknown else ""
    return f"**Targets**\n\n{_table(head, rows)}{rest}"


def _missing(results: Results) -> str:
    lines = dict.fromkeys(
        f"- {peer} {type_}".rstrip() + f", {case}, threads {threads}: not measured: {reason}"
        for case, threads, peer, type_, reason in results.missing
    )
    return "\n".join(lines)
