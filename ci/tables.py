"""The tables of docs/ that the code holds: `python ci/tables.py` writes them where they changed.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. `--check` writes nothing and fails
where a page is stale; the tests run that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kvassay.judging.requirements import in_words
from kvassay.judging.rules import rulebook
from kvassay_suites.correctness.faults.case import CASES, described

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_TABLE: Final = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def faults() -> Iterable[tuple[object, ...]]:
    """The cases of faults, with what their docstrings say."""
    yield "n", "fault", "case", "expected"
    for number, one in sorted(CASES.items()):
        yield number, one.name, *described(one)


def rules() -> Iterable[tuple[object, ...]]:
    """The rules in the order of rules.toml."""
    yield "rule", "threshold", "scope", "applies to"
    for rule in rulebook().rules:
        yield rule.name, rule.threshold, rule.scope, in_words(rule.requires) or "all"


TABLES: Final[Mapping[str, Callable[[], Iterable[tuple[object, ...]]]]] = {
    "faults": faults,
    "rules": rules,
}


def written(text: str) -> str:
    """A page with its tables as the code has them now."""

    def table(match: re.Match[str]) -> str:
        head, *rows = TABLES[match[2]]()
        lines = [head, ("---",) * len(head), *rows]
        cells = "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
        return f"{match[1]}\n{cells}\n{match[3]}"

    return _TABLE.sub(table, text)


def main() -> int:
    """Write or check every page; the number of those that were stale is the exit status."""
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    print(f"tables: {', '.join(stale) or 'none'} stale")
    return len(stale) if "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
