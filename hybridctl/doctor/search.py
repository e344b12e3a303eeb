"""Find knowledge entries and runbooks by free text: an error line, a symptom, a word, in English or in Chinese."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

from hybridctl.doctor.knowledge import Entry, Knowledge, Symptom
from hybridctl.doctor.pasted import find_symptoms
from hybridctl.doctor.runbooks import Library, Runbook
from hybridctl.doctor.words import canonical, has_han, shape, words

How = Literal["line", "wording"]
"""``line``: the text has a line that an entry or runbook knows. ``wording``: they merely share rare words."""
T = TypeVar("T")

_LITERAL = 8.0
_ENOUGH = 3.0
_FEW_WORDS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, each with how: best first."""

    entries: list[tuple[Entry, How]]
    runbooks: list[tuple[Runbook, How]]


def search(
    knowledge: Knowledge, library: Library, text: str, language: str, entries: int = 8, runbooks: int = 3
) -> Found:
    """Entries whose symptom stands in the text come first, then those that share rare words; the same for runbooks.

    Args:
        language: of the runbooks, where there is one in it.
    """
    near = nearest(knowledge, text, len(knowledge.entries))
    known = _by_line(knowledge, text, near)
    found: list[tuple[Entry, How]] = [(e, "line") for e in known]
    found += [(e, "wording") for e in near[: entries + len(known)] if e not in known]
    return Found(found[:entries], _runbooks(library, text, language, known)[:runbooks])


def language_of(text: str) -> str | None:
    """``zh`` for a text with Chinese in it, else unknown: error messages are English everywhere."""
    return "zh" if has_han(text) else None


def nearest(knowledge: Knowledge, text: str, count: int = 5) -> list[Entry]:
    """The entries that share the rarest words with a text, best first; fewer than ``count`` when little is shared."""
    literal = {e.id: _LITERAL * sum(s["anchor"] in text for s in e.symptom) for e in knowledge.entries.values()}
    return [knowledge.entries[id] for _, id in _ranked(_entry_words(knowledge), words(text), literal)[:count]]


def _ranked(documents: Mapping[T, set[str]], asked: set[str], literal: Mapping[T, float]) -> list[tuple[float, T]]:
    """Documents by the rarity of the words that they share with what was asked, and by what they have literally."""
    frequency = {w: sum(w in d for d in documents.values()) for w in asked}
    scored = []
    for key, document in documents.items():
        score = literal[key] + sum(math.log(1 + len(documents) / frequency[w]) for w in asked & document)
        if score > _ENOUGH:
            scored.append((score / math.sqrt(20 + len(document)), key))
    scored.sort(key=lambda row: (-row[0], row[1]))
    return scored


@lru_cache(maxsize=4)
def _entry_words(knowledge: Knowledge) -> Mapping[str, set[str]]:
    return {e.id: words(_entry_document(e)) for e in knowledge.entries.values()}


def _entry_document(entry: Entry) -> str:
    symptoms = " ".join(s["anchor"] for s in entry.symptom)
    return " ".join((entry.id.replace("-", " "), entry.title, symptoms, entry.cause, " ".join(entry.keywords)))


@lru_cache(maxsize=4)
def _all_symptoms(knowledge: Knowledge) -> list[Symptom]:
    """Those of entries that never fire as well: a search may find them."""
    return [symptom for entry in knowledge.entries.values() for symptom in entry.symptoms()]


def _by_line(knowledge: Knowledge, text: str, near: list[Entry]) -> list[Entry]:
    """Entries with a symptom on a line of the text: what the line alone proves stands before what counts with facts only."""
    seen = {hit.entry_id for hit in find_symptoms(text, _all_symptoms(knowledge))}
    place = {entry.id: i for i, entry in enumerate(near)}
    entries = [knowledge.entries[id] for id in seen]
    return sorted(entries, key=lambda e: (e.fires not in ("symptom", "either"), place.get(e.id, len(near)), e.id))


def _runbooks(library: Library, text: str, language: str, known: list[Entry]) -> list[tuple[Runbook, How]]:
    documents = _page_words(library)
    asked, asked_shape = canonical(text), shape(text)
    literal = {name: _LITERAL * _literal(page, asked, asked_shape) for name, page in library.pages.items()}
    for place, entry in enumerate(known[:3]):
        for name, page in library.pages.items():
            if page.id == library.of(entry.id, entry.area):
                literal[name] = max(literal[name], _LITERAL / (1 + place))
    found: dict[str, tuple[Runbook, How]] = {}
    # Who types a few words, one of them the name of a runbook, means it; in a longer text it is a word like others.
    typed = asked.split()
    named = {p.name for p in library.pages.values() if p.id in typed} if len(typed) <= _FEW_WORDS else set()
    weights = {name: max(value, _LITERAL * (name in named)) for name, value in literal.items()}
    for _, name in _ranked(documents, words(text), weights):
        id = library.pages[name].id
        how: How = "line" if literal[name] else "wording"
        if (shown := library.find(id, language)) and id not in found:
            found[id] = (shown, how)
    return list(found.values())


@lru_cache(maxsize=4)
def _page_words(library: Library) -> Mapping[str, set[str]]:
    return {name: words(_page_document(page)) for name, page in library.pages.items()}


def _page_document(page: Runbook) -> str:
    return " ".join((page.id.replace("-", " "), page.title, *page.symptoms, *page.keywords, *page.quotes()))


def _literal(page: Runbook, asked: str, asked_shape: str) -> float:
    """How much of what was asked is literally a symptom or a quoted line of the page, or holds one: 0 to 2."""
    best = 0.0
    for symptom in page.symptoms:
        if (known := canonical(symptom)) in asked or (len(asked) >= 2 and asked in known):
            best = max(best, 1 + min(len(known), len(asked)) / max(len(known), len(asked)))
    for quote in page.quotes():
        parts = [p for p in shape(quote).split("…") if len(p.strip()) >= 12]
        if parts and all(p.strip() in asked_shape for p in parts):
            best = max(best, 1.5)
    return best
