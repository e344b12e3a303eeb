"""``hybridctl runbook`` and its short form ``hybridctl explain``: what to do about a fault, by id or by an error line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hybridctl.commands._options import JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hybridctl.doctor.knowledge import Knowledge
    from hybridctl.doctor.runbooks import Library


def register(app: typer.Typer) -> None:
    app.command("runbook", short_help="What to do about a finding or an error line, step by step.")(runbook)
    app.command("explain", hidden=True, short_help="The same as runbook.")(runbook)


def runbook(
    what: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[ID|TEXT]", help="Id of a finding or a runbook, or an error line.", show_default=False),
    ] = None,
    lang: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--lang", metavar="en|zh", help="Language of runbooks; else that of the text or locale."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a runbook, an entry or a check by its id. Works offline.

    Anything that is no id is looked for: paste the error line, or say what you see, in English or Chinese. Without an argument,
    list the runbooks.

    Example: hybridctl runbook "exceeds available Mamba cache blocks"
    """
    from hybridctl.doctor import knowledge, pages, runbooks
    from hybridctl.doctor.search import language_of, search
    from hybridctl.errors import UsageError
    from hybridctl.output import Output

    text = " ".join(what or ()).strip()
    out = Output("json" if as_json else "human")
    library, known = runbooks.load(), knowledge.load()
    if lang is not None and lang not in library.languages:
        raise UsageError(f"--lang: no runbook in {lang[:20]!r}", f"--lang {'|'.join(library.languages)}")
    language = lang or language_of(text) or runbooks.preferred_language()
    if not text:
        listed = library.all(language)
        rows = [pages.runbook_row(page) for page in listed]
        out.json({"schema_version": 1, "runbooks": rows}) if as_json else out.show(*pages.contents_page(listed))
        return
    if named := _named(known, library, text, language, out.terminal):
        if as_json:
            out.json({"schema_version": 1, **{kind: document for kind, document, _ in named}})
        elif len(named) > 1:
            kinds = " and ".join(f"{'an' if kind == 'entry' else 'a'} {kind}" for kind, _, _ in named)
            out.show(f"{text} names {kinds}. One after the other:", "")
        for _, _, page in named:
            out.show(*page)
        return
    found = search(known, library, text, language)
    if as_json:
        entries = [pages.entry_json(e, library.of(e.id, e.area)) | {"match": how} for e, how in found.entries]
        books = [pages.runbook_row(page) | {"match": how} for page, how in found.runbooks]
        out.json({"schema_version": 1, "query": text, "runbooks": books, "entries": entries})
    elif found.entries or found.runbooks:
        out.show(*pages.found_page(found, language))
    else:
        raise UsageError(f"no entry and no runbook is near to {text[:80]!r}", "hybridctl runbook")


Named = tuple[str, dict[str, Any], "list[RenderableType]"]
"""One thing that has the id: its kind, its JSON, its page."""


def _named(known: Knowledge, library: Library, name: str, language: str, terminal: bool) -> list[Named]:
    """Whatever has this id. Ids of one kind are unique; two kinds may share one."""
    from hybridctl.doctor import check_sources, pages

    out: list[Named] = []
    if entry := known.find(name):
        book = library.of(entry.id, entry.area)
        out.append(("entry", pages.entry_json(entry, book), pages.entry_page(entry, book)))
    if page := library.find(name, language):
        ids = [e.id for e in known.entries.values() if library.of(e.id, e.area) == page.id]
        out.append(("runbook", pages.runbook_json(page, ids), pages.runbook_page(page, len(ids), terminal)))
    # No check has the id of an entry or a runbook (tests see to it), and to look for one all of them are loaded.
    if not out and (check := check_sources.find(name)):
        books = list(dict.fromkeys(library.of(name, area) for area in check_sources.areas(check)))
        document = {"id": check.id, "title": check.title, "asked": name, "runbooks": books}
        out.append(("check", document, pages.check_page(check, books, name)))
    return out
