"""Symptoms in text that is no log: people put the error, or what they saw, between the lines of their environment."""

from __future__ import annotations

from collections.abc import Sequence

from hybridctl.doctor.facts.clean import clean_lines
from hybridctl.doctor.knowledge import Hit, Symptom
from hybridctl.doctor.logreader.records import Line
from hybridctl.doctor.logreader.symptoms import match_symptoms


def find_symptoms(text: str, symptoms: Sequence[Symptom], source: str = "env") -> list[Hit]:
    """The first line of a pasted text that shows each symptom."""
    lines = [Line(line.number, line.text, line.text) for line in clean_lines(text)]
    first: dict[Symptom, Hit] = {}
    for symptom, line, groups in match_symptoms(lines, symptoms):
        first.setdefault(symptom, Hit(symptom.entry_id, line.number, line.text, groups, 2, source))
    return [first[symptom] for symptom in symptoms if symptom in first]
