"""Pages of the knowledge: an entry, a check, a runbook, and what a search found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hybridctl.doctor.check_sources import describe
from hybridctl.doctor.fields import Row, fields, whole
from hybridctl.doctor.knowledge import Entry, fill
from hybridctl.doctor.prose import as_terminal, as_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hybridctl.doctor.checks import Check
    from hybridctl.doctor.runbooks import Runbook
    from hybridctl.doctor.search import Found

_SAY = {
    "en": {
        "none by id": "Nothing has this as its id. By what it says, best first:",
        "runbooks": "Runbooks (step by step)",
        "entries": "Entries (one fault each)",
        "line": "this line",
        "wording": "wording",
        "in full": "One of them in full: hybridctl runbook ID",
        "source": "source",
        "known": "known",
        "verified": "last verified {date}; {count} entries of the knowledge base lead here",
    },
    "zh": {
        "none by id": "没有以此为 id 的条目。按内容查找，最接近的在前：",
        "runbooks": "排障手册（按步骤处理）",
        "entries": "知识库条目（每条一个故障，英文）",
        "line": "症状吻合",
        "wording": "措辞相近",
        "in full": "查看全文：hybridctl runbook ID",
        "source": "来源",
        "known": "说明",
        "verified": "最近核实：{date}；知识库中有 {count} 条指向本页",
    },
}
"""The few words of our own around a runbook, by its language."""


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


def entry_page(entry: Entry, runbook: str) -> list[RenderableType]:
    """Everything that is known of one fault, and the id of its runbook."""
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
    rows.append(("runbook", whole(f"hybridctl runbook {runbook}", style="green")))
    if entry.aliases:
        row("also", ", ".join(entry.aliases))
    return [Text.assemble((entry.id, "bold cyan"), "  ", (entry.title, "bold")), "", *fields(rows)]


def entry_json(entry: Entry, runbook: str) -> dict[str, Any]:
    return {
        "id": entry.id, "title": entry.title, "area": entry.area, "severity": entry.severity, "fires": entry.fires,
        "cause": entry.cause, "fix": entry.fix, "when": entry.when, "unless": entry.unless, "symptom": entry.symptom,
        "fixed_in": entry.fixed_in, "source": entry.source, "confidence": entry.confidence,
        "last_verified": entry.last_verified, "aliases": entry.aliases, "runbook": runbook,
    }  # fmt: skip


def runbook_page(page: Runbook, entries: int, terminal: bool) -> list[RenderableType]:
    """A runbook: for a terminal laid out to its width, else as the Markdown that it is."""
    say = _SAY.get(page.language, _SAY["en"])
    rows: list[Row] = [(say["source"] if i == 0 else "", whole(source)) for i, source in enumerate(page.source)]
    rows.append((say["known"], Text(say["verified"].format(date=page.last_verified, count=entries))))
    if not terminal:
        text = f"# {page.title}\n\n{as_text(page.text).rstrip()}\n"
        return [*(whole(line) for line in text.splitlines()), "", *fields(rows)]
    return [
        Text.assemble((page.name, "bold cyan"), "  ", (page.title, "bold")),
        "",
        *as_terminal(page.text),
        *fields(rows),
    ]


def runbook_row(page: Runbook) -> dict[str, Any]:
    """A runbook in a list of JSON."""
    return {"id": page.id, "name": page.name, "language": page.language, "topic": page.topic, "title": page.title}


def runbook_json(page: Runbook, entries: list[str]) -> dict[str, Any]:
    """A runbook in full; ``entries``: ids of the entries that lead to it."""
    return runbook_row(page) | {
        "areas": page.areas, "findings": page.findings, "entries": entries, "symptoms": page.symptoms,
        "keywords": page.keywords, "source": page.source, "last_verified": page.last_verified, "text": page.text,
    }  # fmt: skip


def check_page(check: Check, runbooks: list[str], asked: str) -> list[RenderableType]:
    """A check of the doctor, or something that only a check finds."""
    rows: list[Row] = [("check", Text(check.id))] if asked != check.id else []
    rows.append(("looks at", Text(describe(check))))
    rows += [("runbook" if i == 0 else "", whole(f"hybridctl runbook {id}", "green")) for i, id in enumerate(runbooks)]
    title = check.title if asked == check.id else f"found by the check of: {check.title}"
    return [Text.assemble((asked, "bold cyan"), "  ", (title, "bold")), "", *fields(rows)]


def contents_page(pages: list[Runbook]) -> list[RenderableType]:
    """All runbooks, by topic."""
    table = _table()
    for i, page in enumerate(pages):
        if i == 0 or page.topic != pages[i - 1].topic:
            table.add_row(Text("\n" * (i > 0) + page.topic, style="bold"))
        table.add_row("  " + page.name, Text(page.title))
    hint = 'One in full: hybridctl runbook ID. By what you see: hybridctl runbook "a line of the log"'
    return [table, "", Text(hint, style="dim")]


def found_page(found: Found, language: str) -> list[RenderableType]:
    """What a search found: runbooks, then entries, best first."""
    say = _SAY.get(language, _SAY["en"])
    out: list[RenderableType] = [Text(say["none by id"]), ""]
    if found.runbooks:
        table = _table()
        for page, how in found.runbooks:
            table.add_row(page.name, say[how], Text(page.title))
        out += [Text(say["runbooks"], style="bold"), table, ""]
    if found.entries:
        table = _table()
        for entry, how in found.entries:
            table.add_row(entry.id, say[how], Text(entry.title))
        out += [Text(say["entries"], style="bold"), table, ""]
    return [*out, Text(say["in full"], style="dim")]


def _table() -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table
