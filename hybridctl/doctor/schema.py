"""What a knowledge entry and the header of a runbook must look like: for the compiler and for tests, not for every start."""

from __future__ import annotations

import datetime
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hybridctl.doctor.conditions import check_condition
from hybridctl.doctor.findings import AREAS, UNVERIFIED
from hybridctl.doctor.phases import PHASES


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SymptomModel(_Strict):
    """One line that a program prints."""

    anchor: str = Field(min_length=6)
    """A literal part of the line: logs are searched for anchors first, on bytes."""
    regex: str = ""
    """Python pattern that the line must match besides; empty: the anchor is enough. Named groups fill the fix commands."""

    @model_validator(mode="after")
    def _compiles(self) -> SymptomModel:
        try:
            pattern = re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"regex {self.regex!r}: {error}") from error
        if self.regex and pattern.match("") is not None:
            raise ValueError(f"regex {self.regex!r} matches the empty line")
        if "\n" in self.anchor:
            raise ValueError("an anchor is part of one line")
        return self


class FixModel(_Strict):
    text: str = Field(min_length=4)
    command: str | None = None


class EntryModel(_Strict):
    """One fault, one file. The file's name is the id."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{2,70}$")
    title: str = Field(min_length=8, max_length=120)
    area: str
    severity: Literal["error", "warning", "info"]
    fires: Literal["symptom", "facts", "either", "both", "note"]
    """symptom: a log line is enough, unless the facts contradict. facts: the facts are enough. either: one of them.
    both: the line has many causes, so it counts only with the facts. note: never; found by search."""
    benign: bool = False
    """The line looks like an error and is none."""
    phase: str = "config"
    """The stage of the start at which the fault shows: a log that got past it clears a finding made from facts alone."""
    cause: str = Field(min_length=10)
    fix: list[FixModel] = []
    when: dict[str, Any] = {}
    unless: dict[str, Any] = {}
    """Clears the entry when it is known to hold; unknown does not clear."""
    symptom: list[SymptomModel] = []
    explains: list[str] = []
    aliases: list[str] = []
    keywords: list[str] = []
    fixed_in: str = ""
    confidence: Literal[
        "maintainer-confirmed", "reporter-confirmed", "measured", "inferred", "unresolved", "unverified"
    ]
    last_verified: datetime.date
    source: list[str] = Field(min_length=1)

    @field_validator("area")
    @classmethod
    def _area(cls, value: str) -> str:
        if value not in AREAS:
            raise ValueError(f"no area {value!r}; one of {', '.join(AREAS)}")
        return value

    @field_validator("phase")
    @classmethod
    def _phase(cls, value: str) -> str:
        if value not in PHASES:
            raise ValueError(f"no phase {value!r}; one of {', '.join(PHASES)}")
        return value

    @model_validator(mode="after")
    def _whole(self) -> EntryModel:
        problems = check_condition(self.when) + check_condition(self.unless, "unless")
        if self.fires in ("symptom", "either", "both") and not self.symptom:
            problems.append(f'fires = "{self.fires}" needs a [[symptom]]')
        if self.fires in ("facts", "either", "both") and not self.when:
            problems.append(f'fires = "{self.fires}" needs a [when]')
        if self.fires not in ("note",) and self.severity != "info" and not self.fix:
            problems.append("a firing entry needs a [[fix]]")
        if self.confidence == UNVERIFIED and (self.severity != "info" or self.explains):
            problems.append("an unverified claim is information, and explains nothing")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class RunbookModel(_Strict):
    """The header of a runbook. Its id and language are the file's name, its title the first heading."""

    topic: str = Field(default="", max_length=40)
    """The heading that it stands under in the list."""
    areas: list[str] = []
    """Findings of these areas belong to it, unless another runbook lists their ids."""
    findings: list[str] = []
    symptoms: list[str] = Field(min_length=1)
    keywords: list[str] = []
    source: list[str] = []
    last_verified: datetime.date | None = None

    @field_validator("areas")
    @classmethod
    def _areas(cls, value: list[str]) -> list[str]:
        if unknown := [a for a in value if a not in AREAS]:
            raise ValueError(f"no area {unknown[0]!r}; one of {', '.join(AREAS)}")
        return value

    @field_validator("symptoms")
    @classmethod
    def _symptoms(cls, value: list[str]) -> list[str]:
        if short := [s for s in value if len(s.strip()) < 3]:
            raise ValueError(f"symptom {short[0]!r} would match almost any text")
        return value
