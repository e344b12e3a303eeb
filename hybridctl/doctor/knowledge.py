"""The knowledge base: one TOML file a fault under ``recipes/known_bad``, joined with facts and log lines in three values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from hybridctl.data import load_compiled as load_compiled
from hybridctl.data import read_toml as read_toml
from hybridctl.data import recipes_dir
from hybridctl.doctor.conditions import Verdict, evaluate
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix
from hybridctl.doctor.phases import is_past
from hybridctl.errors import BrokenDataError

LINE = "log line"
"""The name of evidence that is a line of a log or of a paste, not a fact."""
_PLACEHOLDER = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Symptom:
    """A line that a program prints: ``anchor`` is a literal part of it, ``regex`` (may be empty) must match besides."""

    entry_id: str
    anchor: str
    regex: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A symptom seen in a log. ``weight``: 3 in the error that ended the run, 2 in another error, 1 elsewhere."""

    entry_id: str
    line: int
    text: str
    groups: Mapping[str, str]
    weight: int
    source: str = "log"


@dataclass(frozen=True)
class Entry:
    """One fault. Fields as :class:`hybridctl.doctor.schema.EntryModel`."""

    id: str
    title: str
    area: str
    severity: Any
    fires: str
    cause: str
    confidence: str
    last_verified: str
    source: list[str]
    benign: bool = False
    phase: str = "config"
    fix: list[dict[str, Any]] = field(default_factory=list)
    when: dict[str, Any] = field(default_factory=dict)
    unless: dict[str, Any] = field(default_factory=dict)
    symptom: list[dict[str, str]] = field(default_factory=list)
    explains: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    fixed_in: str = ""

    def symptoms(self) -> list[Symptom]:
        return [Symptom(self.id, s["anchor"], s.get("regex", "")) for s in self.symptom]

    def judge(self, facts: Facts, hits: list[Hit]) -> tuple[Finding | None, list[str]]:
        """The finding, if the entry fires; else the facts that would decide it (empty when it is cleared or does not apply)."""
        if self.fires == "note":
            return None, []
        if self.unless and evaluate(self.unless, facts).value:
            return None, []
        verdict = evaluate(self.when, facts)
        if verdict.value is False:
            return None, []
        hit = max(hits, key=lambda h: h.weight, default=None)
        by_facts = verdict.value is True and self.fires in ("facts", "either") and bool(self.when)
        if self.fires == "both" and verdict.value is not True:
            return None, verdict.missing if hit else []
        by_line = hit is not None and self.fires != "facts"
        if not by_line and by_facts:
            reached = facts.value("log.reached")
            if isinstance(reached, str) and is_past(reached, self.phase):
                return None, []
        if not (by_line or by_facts):
            worth_asking = self.fires in ("facts", "either") and verdict.value is None and verdict.evidence
            return None, verdict.missing if worth_asking else []
        return self._finding(facts, verdict, hit if by_line else None, hits if by_line else []), []

    def _finding(self, facts: Facts, verdict: Verdict, hit: Hit | None, hits: list[Hit]) -> Finding:
        evidence = list(verdict.evidence)
        groups: dict[str, str] = {}
        if hit:
            groups = dict(hit.groups)
            lines = [hit, *(h for h in hits if h is not hit)]
            evidence[:0] = [Evidence(LINE, h.text, "", f"{h.source}:{h.line}", h.text) for h in lines]
        model = facts.value("model.name")
        groups.setdefault("model", str(model) if model else "MODEL")
        # What the person saw is no mere risk, so it counts as much as a line between the facts.
        seen = self.severity == "error" or any(e.fact == "report.said" for e in verdict.evidence)
        certainty = hit.weight if hit else (2 if seen else 1)
        return Finding(
            id=self.id,
            title=self.title,
            area=self.area,
            severity=self.severity,
            cause=self.cause,
            evidence=evidence,
            fix=[
                Fix(fill(f["text"], groups), fill(f["command"], groups) if f.get("command") else None) for f in self.fix
            ],
            source=self.source,
            confidence=self.confidence,
            aliases=self.aliases,
            explains=self.explains,
            phase=self.phase,
            certainty=certainty,
            specificity=verdict.met + (2 if hit else 0),
        )


def fill(template: str, groups: Mapping[str, str]) -> str:
    """Put what the log line said into a text: ``{blocks}``, or ``{blocks|128}`` with a value for when it is not known."""
    return _PLACEHOLDER.sub(lambda m: groups.get(m[1]) or (m[2] if m[2] is not None else m[1].upper()), template)


class Knowledge:
    """All entries, by id."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = {e.id: e for e in entries}

    @cached_property
    def symptoms(self) -> list[Symptom]:
        """Symptoms of every entry that can fire."""
        return [s for e in self.entries.values() if e.fires != "note" for s in e.symptoms()]

    @cached_property
    def benign_ids(self) -> frozenset[str]:
        return frozenset(e.id for e in self.entries.values() if e.benign)

    def find(self, name: str) -> Entry | None:
        """An entry by its id or an alias."""
        if name in self.entries:
            return self.entries[name]
        return next((e for e in self.entries.values() if name in e.aliases), None)

    def judge(self, facts: Facts, hits: Iterable[Hit]) -> tuple[list[Finding], dict[str, list[str]]]:
        """Findings, and for each entry that could not be decided, the facts that it lacks."""
        by_entry: dict[str, list[Hit]] = {}
        for hit in hits:
            by_entry.setdefault(hit.entry_id, []).append(hit)
        findings: list[Finding] = []
        undecided: dict[str, list[str]] = {}
        for entry in self.entries.values():
            finding, missing = entry.judge(facts, by_entry.get(entry.id, []))
            if finding:
                findings.append(finding)
            elif missing:
                undecided[entry.id] = missing
        return findings, undecided


def load(directory: Path | None = None) -> Knowledge:
    """The shipped knowledge base. Compiled once and kept in the cache directory, since 600 TOML files take 0.3 s to read.

    Raises:
        BrokenDataError: a file is no valid entry.
    """
    folder = directory or recipes_dir() / "known_bad"
    return Knowledge(Entry(**raw) for raw in load_compiled(folder, _compile_entry))


PHRASES = "_phrases.toml"
_PHRASE = re.compile(r"<<([a-z][a-z-]*)>>")


def expand(value: Any, phrases: Mapping[str, str]) -> Any:
    """Put the shared phrases into every text of an entry: ``<<hang>>`` becomes the group of its wordings.

    Raises:
        BrokenDataError: there is no such phrase.
    """
    if isinstance(value, dict):
        return {key: expand(item, phrases) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, phrases) for item in value]
    if not isinstance(value, str) or "<<" not in value:
        return value
    missing = [name for name in _PHRASE.findall(value) if name not in phrases]
    if missing:
        raise BrokenDataError(f"{PHRASES} has no phrase {missing[0]!r}")
    return _PHRASE.sub(lambda m: phrases[m[1]], value)


@lru_cache(maxsize=4)
def _phrases(path: Path) -> Mapping[str, str]:
    return {k: f"(?:{'|'.join(v)})" for k, v in read_toml(path).items()} if path.is_file() else {}


def _compile_entry(path: Path) -> dict[str, Any]:
    from pydantic import ValidationError

    from hybridctl.doctor.schema import EntryModel

    raw = expand(read_toml(path), _phrases(path.with_name(PHRASES)))
    try:
        entry = EntryModel.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise BrokenDataError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if entry.id != path.stem:
        raise BrokenDataError(f"{path.name}: its id is {entry.id!r}; file name and id must agree")
    return entry.model_dump(mode="json", exclude_defaults=False)
