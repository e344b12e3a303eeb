"""Find knowledge entries by free text: an error line, a symptom, a word."""

from __future__ import annotations

import math
import re
from collections import Counter

from hybridctl.doctor.knowledge import Entry, Knowledge

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}|[\u4e00-\u9fff]{2}")
# Words of every log line and every sentence: they say nothing about which fault it is.
_COMMON = frozenset(
    [
        "the",
        "and",
        "for",
        "with",
        "not",
        "that",
        "this",
        "from",
        "are",
        "was",
        "has",
        "have",
        "error",
        "errors",
        "failed",
        "runtime",
        "valueerror",
        "runtimeerror",
        "info",
        "warning",
        "line",
        "file",
        "self",
        "return",
        "raise",
        "python",
        "vllm",
        "packages",
        "site",
        "dist",
        "local",
        "usr",
        "lib",
        "model",
        "cuda",
        "can",
        "does",
        "must",
        "when",
        "its",
        "but",
    ]
)


def words(text: str) -> set[str]:
    """The telling words of a text, lower case; camel and snake case are split as well as kept."""
    found = set()
    for word in _WORD.findall(text[:20_000]):
        found.add(word.lower())
        found.update(p.lower() for p in re.split(r"_+|(?<=[a-z])(?=[A-Z])", word) if len(p) > 2)
    return found - _COMMON


def _document(entry: Entry) -> str:
    symptoms = " ".join(s["anchor"] for s in entry.symptom)
    return " ".join(
        (entry.id.replace("-", " "), entry.title, symptoms, symptoms, entry.cause, " ".join(entry.keywords))
    )


def nearest(knowledge: Knowledge, text: str, count: int = 5) -> list[Entry]:
    """The entries that share the rarest words with a text, best first; fewer than ``count`` when little is shared."""
    asked = words(text)
    if not asked:
        return []
    documents = {e.id: words(_document(e)) for e in knowledge.entries.values()}
    frequency = Counter(w for d in documents.values() for w in d)
    scored = []
    for entry in knowledge.entries.values():
        shared = asked & documents[entry.id]
        score = sum(math.log(1 + len(documents) / frequency[w]) for w in shared)
        literal = sum(8.0 for s in entry.symptom if s["anchor"] in text)
        if score + literal > 3:
            scored.append(((score + literal) / math.sqrt(20 + len(documents[entry.id])), entry.id, entry))
    scored.sort(key=lambda row: (-row[0], row[1]))
    return [entry for _, _, entry in scored[:count]]
