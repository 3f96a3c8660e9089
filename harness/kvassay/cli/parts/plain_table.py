"""Tables as all commands print them: a row a line while no word must be broken for it, else a block
a row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

#: Words up to this length are never broken in a table: names of rules, paths of a checkout.
_WORD: Final = 40
#: What stands between two columns, and at both edges together.
_BETWEEN: Final = 2
_EDGES: Final = 2


class PlainTable:
    """Columns by name, those in `right` with their figures below each other; cells are text as it
    stands: brackets are no markup. The first column names a row."""

    def __init__(self, *columns: str, title: str = "", right: Collection[str] = ()) -> None:
        self.columns, self.title, self.right = columns, title, right
        self.rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row: a cell for every column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append([Text(cell) if isinstance(cell, str) else cell for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[object]:
        """As a table if that fits, else as blocks."""
        cells = [[Text(name) for name in self.columns], *self.rows]
        columns = [[row[at].plain for row in cells] for at in range(len(self.columns))]
        widths = fitted(columns, options.max_width - _EDGES - _BETWEEN * (len(columns) - 1))
        if widths is not None:
            yield self._table(widths)
            return
        if self.title:
            yield Text(self.title, style="italic")
        yield ""
        for row in self.rows:
            yield from self._block(row)
        yield ""

    def _table(self, widths: Sequence[int]) -> Table:
        table = Table(
            title=self.title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
            padding=(0, 1, 0, 0),
        )  # fmt: skip
        for name, width in zip(self.columns, widths, strict=True):
            table.add_column(
                name,
                justify="right" if name in self.right else "left",
                width=width,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*row)
        return table

    def _block(self, row: Sequence[Text]) -> Iterator[object]:
        """The name in one line, what is known of it below."""
        yield row[0]
        named = zip(self.columns[1:], row[1:], strict=True)
        known = [Text.assemble(f"{name} ", cell) for name, cell in named if cell.plain]
        yield Padding(Text(", ").join(known), (0, 0, 0, 2))


def fitted(columns: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Widths of columns of these texts, that are together at most `width`; None where words would
    have to be broken.

    Each column gets what its longest word needs, and of the rest an equal share, if it needs it.
    """
    least = [max(min(_WORD, len(w)) for text in c for w in text.split() or [""]) for c in columns]
    whole = [max(map(len, column)) for column in columns]
    spare = width - sum(least)
    if spare < 0:
        return None
    widths = list(least)
    rising = sorted(range(len(columns)), key=lambda at: whole[at] - least[at])
    for done, at in enumerate(rising):
        share = min(whole[at] - least[at], spare // (len(rising) - done))
        widths[at] += share
        spare -= share
    return widths
