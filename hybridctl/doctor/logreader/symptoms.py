"""Finding the symptoms of the knowledge base on the lines that were kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from hybridctl.doctor.knowledge import Symptom
from hybridctl.doctor.logreader.prefixes import parse_line
from hybridctl.doctor.logreader.records import Line


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


Match = tuple[Symptom, Line, dict[str, str]]


def match_symptoms(lines: Sequence[Line], symptoms: Sequence[Symptom]) -> list[Match]:
    """Every symptom on every line that has it: the anchor stands there and the pattern matches, with prefixes or without."""
    whole = "\n".join(x.text for x in lines)
    present = [s for s in symptoms if s.anchor in whole]
    out: list[Match] = []
    for symptom in present:
        for line in lines:
            if symptom.anchor not in line.text:
                continue
            groups = _matches(symptom, line)
            if groups is None:
                continue
            out.append((symptom, line, groups))
    out.sort(key=lambda hit: hit[1].number)
    return out


def questions(symptoms: Sequence[Symptom]) -> dict[str, list[int]]:
    """Anchors, each with the places of its symptoms."""
    out: dict[str, list[int]] = {}
    for i, symptom in enumerate(symptoms):
        out.setdefault(symptom.anchor, []).append(i)
    return out


def fitting(symptoms: Sequence[Symptom]) -> Callable[[str, str], list[int]]:
    """Which symptoms with an anchor a line has, by their places."""
    by_anchor = questions(symptoms)

    def fits(anchor: str, text: str) -> list[int]:
        line = parse_line(0, text)
        return [i for i in by_anchor.get(anchor, ()) if _matches(symptoms[i], line) is not None]

    return fits


def _matches(symptom: Symptom, line: Line) -> dict[str, str] | None:
    if not symptom.regex:
        return {}
    pattern = _compiled(symptom.regex)
    m = pattern.search(line.body) or pattern.search(line.text)
    if m is None:
        return None
    return {k: v for k, v in m.groupdict().items() if v is not None}
