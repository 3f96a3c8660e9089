"""Tables of the task families: `python -m kvassay_suites.quality.tasks results.jsonl`.

Reads the records of `kvassay quality --scope full --records results.jsonl` and prints Markdown.
What is concluded is computed again from the records of the conversations.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kvassay.errors import KvassayError
from kvassay.judging.evidence import read_run
from kvassay.judging.rules import evaluate, rulebook
from kvassay.records import Record

from . import FAMILIES
from .conclusions import conclude
from .measure import CHECK

_RULES = ("chat_nll_rise", "task_harm", "task_kl", "safety_agreement")


def tables(records: Sequence[Record]) -> str:
    """A table of full precision, one of all arms by family, one of the rules by arm."""
    items = [record for record in records if record.check == f"quality.{CHECK}"]
    if not items:
        raise KvassayError(f"no records of quality.{CHECK}: run kvassay quality --scope full")
    concluded = conclude(items)
    arms = list(dict.fromkeys(record.preset for record in items))
    return "\n".join([*_full(concluded), "", *_families(concluded), "", *_rules(concluded, arms)])


def _full(concluded: Sequence[Record]) -> list[str]:
    lines = ["| family | items | right | informative | NLL a token |", "|---|---|---|---|---|"]
    for record in _in_order(concluded, "task_full_score"):
        informative = "yes" if record.detail["informative"] else "no"
        lines.append(
            f"| {record.subject} | {record.comparisons} | {record.value:.2f} | {informative} "
            f"| {record.detail['nll']:.2f} |"
        )
    return lines


def _families(concluded: Sequence[Record]) -> list[str]:
    lines = [
        "| family | arm | KL, nats | right | NLL rise | harm, adjusted p |",
        "|---|---|---|---|---|---|",
    ]
    for kl in _in_order(concluded, "task_kl"):
        if kl.comparisons:
            mine = {
                r.check: r for r in concluded if (r.preset, r.subject) == (kl.preset, kl.subject)
            }
            rise, score = mine["quality.task_nll_rise"], mine["quality.task_score"]
            harm = mine.get("quality.task_harm")
            lines.append(
                f"| {kl.subject} | `{kl.preset}` | {_with(kl, '.4f')} | {score.value:.2f} "
                f"| {_with(rise, '+.1%')} | {f'{harm.value:.3f}' if harm else ''} |"
            )
    return lines


def _with(record: Record, form: str) -> str:
    low, high = record.detail["interval"]
    return f"{record.value:{form}} ({low:{form}} .. {high:{form}})"


def _rules(concluded: Sequence[Record], arms: Sequence[str]) -> list[str]:
    lines = [f"| arm | {' | '.join(_RULES)} |", "|---|" + "---|" * len(_RULES)]
    for arm in arms:
        mine = [record for record in concluded if record.preset == arm]
        cells = []
        for name in _RULES:
            found = evaluate(rulebook().rule(f"quality.{name}"), mine)
            measured = found.state in ("pass", "reject")
            cells.append(f"{found.state} {found.value:.4f}" if measured else found.state)
        lines.append(f"| `{arm}` | {' | '.join(cells)} |")
    return lines


def _in_order(concluded: Sequence[Record], check: str) -> list[Record]:
    order = list(FAMILIES)
    found = [record for record in concluded if record.check == f"quality.{check}"]
    return sorted(found, key=lambda record: order.index(record.subject))


if __name__ == "__main__":
    try:
        print(tables(read_run(sys.argv[1])))
    except (IndexError, OSError, KvassayError) as error:
        sys.exit(f"error: {error}; usage: python -m kvassay_suites.quality.tasks results.jsonl")
