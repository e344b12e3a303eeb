"""The page of a knowledge entry, and lists of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hybridctl.doctor.fields import Row, fields, whole
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
    "note": "by no pattern of its own: a check of the doctor finds it, or a search does",
}


def entry_page(entry: Entry) -> list[RenderableType]:
    """Everything that is known of one fault."""
    rows: list[Row] = []

    def row(label: str, *texts: str) -> None:
        rows.extend((label if index == 0 else "", Text(text)) for index, text in enumerate(texts))

    row("area", f"{entry.area} ({entry.severity})")
    row("cause", entry.cause)
    for index, fix in enumerate(entry.fix):
        rows.append(("fix" if index == 0 else "", Text(fill(fix["text"], {}))))
        for line in fill(fix["command"], {"model": "MODEL"}).splitlines() if fix.get("command") else ():
            rows.append(("", whole("  " + line, style="green")))
    row("seen as", *(s["anchor"] for s in entry.symptom))
    row("when", *condition_lines(entry.when))
    row("unless", *condition_lines(entry.unless))
    row("fires", _FIRES[entry.fires])
    if entry.fixed_in:
        row("fixed in", entry.fixed_in)
    rows += [("source" if index == 0 else "", whole(source)) for index, source in enumerate(entry.source)]
    row("known", f"{entry.confidence}, last verified {entry.last_verified}")
    if entry.aliases:
        row("also", ", ".join(entry.aliases))
    return [Text.assemble((entry.id, "bold cyan"), "  ", (entry.title, "bold")), "", *fields(rows)]


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
    head = Text("No entry has this as its id; the nearest by wording, best first:")
    return [head, "", table, "", Text("One of them in full: hybridctl runbook ID", style="dim")]
