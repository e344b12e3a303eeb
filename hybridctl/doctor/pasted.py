"""Symptoms in text that is no log: people put the error, or what they saw, between the lines of their environment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts.clean import clean_lines
from hybridctl.doctor.knowledge import Hit, Symptom


def find_symptoms(text: str, symptoms: Sequence[Symptom], source: str = "env") -> list[Hit]:
    """The first line of a pasted text that shows each symptom."""
    lines = clean_lines(text)
    whole = "\n".join(line.text for line in lines)
    present = [s for s in symptoms if s.anchor in whole]
    hits: list[Hit] = []
    for symptom in present:
        pattern = re.compile(symptom.regex) if symptom.regex else None
        for line in lines:
            if symptom.anchor not in line.text:
                continue
            match = pattern.search(line.text) if pattern else None
            if pattern is None or match:
                groups = {k: v for k, v in match.groupdict().items() if v} if match else {}
                hits.append(Hit(symptom.entry_id, line.number, line.text, groups, 2, source))
                break
    return hits
