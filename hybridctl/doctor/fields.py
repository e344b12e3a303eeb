"""Labelled rows: prose is wrapped beside its label, what is meant for copying stands in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

Row = tuple[str, Text]
_TEXT = 16
"""Columns that prose needs beside its label: with fewer, words are cut into pieces."""


class Roomy:
    """A table where there is room for it; else the cells of each row under one another, with the names of their columns.

    Args:
        table: its cells are texts, or strings that are no markup.
        least: columns of the terminal that it needs to be readable.
    """

    def __init__(self, table: Table, least: int) -> None:
        self._table = table
        self._least = least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= self._least:
            yield self._table
            return
        for row in zip(*(column.cells for column in self._table.columns), strict=True):
            for index, (column, cell) in enumerate(zip(self._table.columns, row, strict=True)):
                text = cell.copy() if isinstance(cell, Text) else Text(str(cell))
                if text.plain.strip():
                    head = Text(f"{column.header} ", style="dim") if index and column.header else Text()
                    text.no_wrap, text.overflow = False, "fold"
                    yield Padding(head + text, (0, 0, 0, 2 if index else 0))


def whole(text: str, style: str = "") -> Text:
    """A command or an address: never folded and never cut, however narrow the terminal is."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def fields(rows: list[Row], indent: int = 0, width: int | None = None, gap: int = 2) -> list[RenderableType]:
    """Rows under one another: labels in a column of ``width`` (that of the longest unless told), ``gap`` blanks, text."""
    if width is None:
        width = max((len(label) for label, _ in rows), default=0)
    out: list[RenderableType] = []
    table: Table | None = None
    for label, text in rows:
        if text.no_wrap:
            table = None
            head = Text(" " * indent, no_wrap=True, overflow="ignore")
            head.append(label.ljust(width) + " " * gap, style="dim")
            head.append_text(text)
            out.append(head)
            continue
        if table is None:
            table = Table.grid(padding=(0, gap, 0, 0), expand=False)
            table.add_column(width=width, style="dim", no_wrap=True)
            table.add_column(overflow="fold")
            out.append(Padding(Roomy(table, width + gap + _TEXT), (0, 0, 0, indent)))
        table.add_row(label, text)
    return out
