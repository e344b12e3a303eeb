"""Runbooks: one Markdown file each under ``recipes/runbooks``, and which of them a finding belongs to.

``<id>.md`` is a runbook, ``<id>.zh.md`` the same one in another language. A file begins with a header, an HTML comment of TOML
(:mod:`hybridctl.doctor.schema` says which keys), then comes ``# title`` and the text. A translation inherits every key that it
leaves out. A finding belongs to the runbook that lists its id under ``findings``, else to the one that lists its area.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hybridctl.data import load_compiled, recipes_dir, toml_table
from hybridctl.doctor.findings import Finding
from hybridctl.errors import BrokenDataError
from hybridctl.patterns import late

SOURCE_LANGUAGE = "en"
_FILE = late(r"<!--\n(?P<header>.*?)\n-->\n+# (?P<title>[^\n]+)\n+(?P<text>.+)", re.DOTALL)
_QUOTE = late(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Runbook:
    """One runbook in one language. ``text`` is Markdown without header and title."""

    id: str
    language: str
    title: str
    text: str
    topic: str = ""
    areas: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """Ids of entries, or of what checks find."""
    symptoms: list[str] = field(default_factory=list)
    """What people say of it, or a part of the line that they see."""
    keywords: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    last_verified: str = ""

    @property
    def name(self) -> str:
        """What opens it in this language: the file's name without ``.md``."""
        return self.id if self.language == SOURCE_LANGUAGE else f"{self.id}.{self.language}"

    def quotes(self) -> list[str]:
        """The lines of programs that the text quotes."""
        return [line for block in _QUOTE.findall(self.text) for line in block.splitlines() if line.strip()]


class Library:
    """All runbooks."""

    def __init__(self, runbooks: Iterable[Runbook]) -> None:
        self.pages = {r.name: r for r in runbooks}
        source = [r for r in self.pages.values() if r.language == SOURCE_LANGUAGE]
        self.languages = sorted({r.language for r in self.pages.values()})
        self._by_finding = {f: r.id for r in source for f in r.findings}
        self._by_area = {a: r.id for r in source for a in r.areas}

    def find(self, name: str, language: str = SOURCE_LANGUAGE) -> Runbook | None:
        """A runbook by its id, in ``language`` if there is such a page; or exactly the page ``<id>.<language>``."""
        page = self.pages.get(name)
        if page is None or "." in name:
            return page
        return self.pages.get(f"{name}.{language}", page)

    def all(self, language: str = SOURCE_LANGUAGE) -> list[Runbook]:
        """Every runbook once, by topic; topics of single faults stand before those of whole areas."""
        ids = sorted({r.id for r in self.pages.values()})
        pages = [page for id in ids if (page := self.find(id, language))]
        general = {page.topic for page in pages if page.areas}
        return sorted(pages, key=lambda r: (r.topic in general, r.topic, r.id))

    def of(self, finding_id: str, area: str) -> str:
        """The id of the runbook for a finding."""
        return self._by_finding.get(finding_id) or self._by_area.get(area, area)

    def link(self, findings: Iterable[Finding]) -> None:
        """Tell every finding its runbook."""
        for finding in findings:
            finding.runbook = finding.runbook or self.of(finding.id, finding.area)


@lru_cache(maxsize=1)
def load() -> Library:
    """The shipped runbooks.

    Raises:
        BrokenDataError: a file is not as it must be.
    """
    rows = load_compiled(recipes_dir() / "runbooks", _compile, ".md")
    source = {row["id"]: row for row in rows if row["language"] == SOURCE_LANGUAGE}
    return Library(Runbook(**{**source.get(row["id"], {}), **row}) for row in rows)


def preferred_language() -> str:
    """The language of the user's locale, ``zh`` for zh_CN.UTF-8; by the rules of POSIX."""
    locale = next((v for v in map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG")) if v), "")
    return re.split(r"[_.@]", locale, maxsplit=1)[0].lower()


def _compile(path: Path) -> dict[str, Any]:
    from pydantic import ValidationError

    from hybridctl.doctor.schema import RunbookModel

    try:
        parts = _FILE.fullmatch(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenDataError(f"{path.name}: {error}") from error
    if parts is None:
        raise BrokenDataError(f"{path.name}: a runbook is a header in <!-- -->, then '# title', then text")
    id, _, language = path.stem.partition(".")
    try:
        header = RunbookModel.model_validate(toml_table(parts["header"], path.name))
    except ValidationError as error:
        first = error.errors()[0]
        raise BrokenDataError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    own = header.model_dump(mode="json", exclude_unset=True)
    return {**own, "id": id, "language": language or SOURCE_LANGUAGE, "title": parts["title"], "text": parts["text"]}
