"""``hybridctl runbook`` and its short form ``hybridctl explain``: the page of an entry, and search by an error line."""

from __future__ import annotations

from typing import Annotated

import typer

from hybridctl.commands._options import JsonOption


def register(app: typer.Typer) -> None:
    app.command("runbook", short_help="Explain a finding by its id, or find entries by an error line.")(runbook)
    app.command("explain", hidden=True, short_help="The same as runbook.")(runbook)


def runbook(
    what: Annotated[
        list[str],
        typer.Argument(metavar="ID|TEXT", help="Id of a finding, or words of an error line.", show_default=False),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the page of a finding: cause, fix, versions and source. Works offline.

    With anything that is no id, list the entries nearest to that text.

    Example: hybridctl runbook "exceeds available Mamba cache blocks"
    """
    from hybridctl.doctor.checks import discover
    from hybridctl.doctor.knowledge import load
    from hybridctl.doctor.pages import entry_json, entry_page, list_page
    from hybridctl.doctor.search import nearest
    from hybridctl.errors import UsageError
    from hybridctl.output import Output

    text = " ".join(what).strip()
    out = Output("json" if as_json else "human")
    knowledge = load()
    entry = knowledge.find(text)
    if entry is not None:
        out.json({"schema_version": 1, "entry": entry_json(entry)}) if as_json else out.show(*entry_page(entry))
        return
    check = next((c for c in discover() if c.id == text), None)
    if check is not None:
        row = {"id": check.id, "title": check.title, "kind": "check"}
        out.json({"schema_version": 1, "entry": row}) if as_json else out.show(f"{check.id}: {check.title}")
        return
    found = nearest(knowledge, text, 8)
    if as_json:
        out.json({"schema_version": 1, "query": text, "entries": [entry_json(e) for e in found]})
    elif found:
        out.show(*list_page(found))
    else:
        raise UsageError(f"nothing in the knowledge base is near to {text[:80]!r}", "hybridctl doctor --log FILE")
