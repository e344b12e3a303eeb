"""The page of a knowledge entry, and lists of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hybridctl.doctor.knowledge import Entry, fill

if TYPE_CHECKING:
    from rich.console import RenderableType


def condition_lines(condition: dict[str, Any], indent: str = "") -> list[str]:
    """A condition in words, one line a part."""
    lines: list[str] = []
    for key, matcher in condition.items():
        if key == "any":
            lines.append(f"{indent}one of:")
            for alternative in matcher:
                lines.append(f"{indent}  - " + "; ".join(condition_lines(alternative)))
        elif key == "not":
            lines.append(f"{indent}not: " + "; ".join(condition_lines(matcher)))
        else:
            shown = " or ".join(map(str, matcher)) if isinstance(matcher, list) else matcher
            lines.append(f"{indent}{key} {str(shown).lower() if isinstance(shown, bool) else shown}")
    return lines


_FIRES = {
    "symptom": "a log line is enough, unless the facts contradict it",
    "facts": "the facts are enough",
    "either": "a log line or the facts are enough",
    "both": "the log line counts only together with the facts",
    "note": "never by itself: it is found by search",
}


def entry_page(entry: Entry) -> list[RenderableType]:
    """Everything that is known of one fault."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")

    def row(label: str, *texts: str) -> None:
        for index, text in enumerate(texts):
            table.add_row(label if index == 0 else "", Text(text))

    row("area", f"{entry.area} ({entry.severity})")
    row("cause", entry.cause)
    for index, fix in enumerate(entry.fix):
        table.add_row("fix" if index == 0 else "", Text(fill(fix["text"], {})))
        if fix.get("command"):
            table.add_row(
                "", Text(fill(fix["command"], {"model": "MODEL"}), style="green", no_wrap=True, overflow="ignore")
            )
    row("seen as", *(s["anchor"] for s in entry.symptom))
    row("when", *condition_lines(entry.when))
    row("unless", *condition_lines(entry.unless))
    row("fires", _FIRES[entry.fires])
    if entry.fixed_in:
        row("fixed in", entry.fixed_in)
    row("source", *entry.source)
    row("known", f"{entry.confidence}, last verified {entry.last_verified}")
    if entry.aliases:
        row("also", ", ".join(entry.aliases))
    return [Text.assemble((entry.id, "bold cyan"), "  ", (entry.title, "bold")), "", table]


def entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id, "title": entry.title, "area": entry.area, "severity": entry.severity, "fires": entry.fires,
        "cause": entry.cause, "fix": entry.fix, "when": entry.when, "unless": entry.unless, "symptom": entry.symptom,
        "fixed_in": entry.fixed_in, "source": entry.source, "confidence": entry.confidence,
        "last_verified": entry.last_verified, "aliases": entry.aliases,
    }  # fmt: skip


def list_page(entries: list[Entry]) -> list[RenderableType]:
    """Entries as a table."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("id", style="cyan", no_wrap=True)
    table.add_column("area", style="dim", no_wrap=True)
    table.add_column("title", overflow="fold")
    for entry in entries:
        table.add_row(entry.id, entry.area, Text(entry.title))
    return [table, "", Text("One of them in full: hybridctl runbook ID", style="dim")]
