"""Labelled rows: prose is wrapped beside its label, what is meant for copying stands in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = tuple[str, Text]


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
            out.append(Padding(table, (0, 0, 0, indent)))
        table.add_row(label, text)
    return out
