"""A log in, what it says out: the error that began the fall, the symptoms that the knowledge base knows, facts, start phases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.knowledge import Hit, Symptom
from hybridctl.doctor.logreader import log_facts, phase_table
from hybridctl.doctor.logreader.choose import choose, family, last_run, mark_survivors
from hybridctl.doctor.logreader.errors import PROGRESS, read_errors
from hybridctl.doctor.logreader.prefixes import parse_line
from hybridctl.doctor.logreader.records import Line, LogError, PhaseTime
from hybridctl.doctor.logreader.scan import scan
from hybridctl.doctor.logreader.symptoms import fitting, match_symptoms, questions

__all__ = ["LogError", "LogReading", "PhaseTime", "read_log"]

_METRIC = re.compile(r"(?:vllm|sglang):\w+(?:\{[^}]*\})?\s+[\d.eE+-]+$")
SHORT = 30
"""Lines of a paste that is an excerpt: somebody chose these lines because they worry."""

MOST_HITS = 20
"""Hits of one entry that are told, the heaviest first."""


@dataclass(slots=True)
class LogReading:
    """What a log says."""

    facts: Facts = field(default_factory=Facts)
    """Statements of the log, with ``Origin("log", line, quote)``."""
    hits: list[Hit] = field(default_factory=list)
    """Symptoms seen. Weight 3: in the innermost error, its chain, or the same error printed by another process. 2: in another
    error, or on an unmarked line of a short excerpt without any error. 1: elsewhere, in particular on a warning."""
    innermost: LogError | None = None
    """The error that began the fall, never one that only reports another."""
    errors: list[LogError] = field(default_factory=list)
    """All errors in the order of the log, except those after which the server came up and stayed up."""
    phases: list[PhaseTime] = field(default_factory=list)
    """Start phases of the last run, in the order of :data:`hybridctl.doctor.phases.PHASES`."""
    reached: str | None = None
    """The furthest phase that was entered; also the fact ``log.reached``."""
    lines: int = 0
    """Lines in the log."""
    read: int = 0
    """Lines that were looked at one by one."""
    looks_like_log: bool = False
    """Whether anything in the text is what a program logs."""
    truncated: bool = False
    """Repeated lines, or the end of a huge line, were left out."""


def read_log(stream: BinaryIO, symptoms: Sequence[Symptom], benign: frozenset[str]) -> LogReading:
    """Read a log or an excerpt of one.

    Args:
        stream: bytes; UTF-8 with anything in it, or UTF-16 with a byte order mark.
        symptoms: what to look for; an anchor is found wherever it stands in the log.
        benign: ids of entries whose lines look like errors and are none.
    """
    raw = scan(stream, questions(symptoms), [*phase_table.NOTES, *log_facts.NOTES], fitting(symptoms))
    lines = [parse_line(number, text) for number, text in raw.lines]
    _lend_process(lines)
    _lend_clock(lines)
    reading = LogReading(lines=raw.total, read=len(lines), truncated=raw.truncated)

    errors = read_errors(lines)
    matches = match_symptoms(lines, symptoms)
    harmless = {line.number for symptom, line, _ in matches if symptom.entry_id in benign}
    for error in errors:
        error.benign = error.line in harmless
    run = last_run(lines)
    progress = phase_table.follow(lines, run)
    mark_survivors(errors, lines, progress.marks, run)
    reading.innermost = choose(errors, run)
    reading.errors = [e for e in errors if not e.survived]
    reading.phases, reading.reached = progress.phases, progress.reached
    reading.hits = _weigh(matches, errors, reading, raw.total)
    log_facts.state(lines, reading.facts, run)
    if progress.reached:
        reading.facts.add("log.reached", progress.reached, Origin("log", progress.line, progress.quote))
    reading.looks_like_log = bool(errors or matches or progress.marks) or any(
        x.level
        or x.process
        or x.style
        or PROGRESS.search(x.body[:300])
        or _METRIC.match(x.body)
        or "Warning:" in x.body
        for x in lines
    )
    return reading


def _lend_process(lines: Sequence[Line]) -> None:
    """Give the bare lines of a record that runs over several lines to the process that began it (SGLang, Python logging)."""
    previous: Line | None = None
    for line in lines:
        bare = not line.process and not line.level and not line.style
        if (
            bare
            and previous is not None
            and previous.style == "sglang"
            and previous.process
            and not PROGRESS.search(line.body[:300])
        ):
            line.process, line.style = previous.process, "sglang"
            line.container = line.container or previous.container
        if line.body.strip():
            previous = line


def _lend_clock(lines: Sequence[Line]) -> None:
    """Give lines without a time stamp the time of the line before, of the same process if it has one."""
    own: dict[str, float] = {}
    latest: float | None = None
    for line in lines:
        if line.clock is not None:
            own[line.key] = latest = line.clock
        else:
            line.clock = own.get(line.key, latest) if line.process else latest


def _weigh(
    matches: Sequence[tuple[Symptom, Line, dict[str, str]]], errors: Sequence[LogError], reading: LogReading, total: int
) -> list[Hit]:
    place: dict[int, int] = {}
    first = family(errors, reading.innermost)
    for i, error in enumerate(errors):
        if error.survived or error.benign:
            continue
        weight = 3 if i in first else 2
        for number in error.lines:
            place[number] = max(place.get(number, 0), weight)
    excerpt = not place and total < SHORT and not reading.reached
    nccl = reading.innermost is not None and "nccl" in reading.innermost.text.lower()
    hits: dict[tuple[str, int], Hit] = {}
    for symptom, line, groups in matches:
        weight = place.get(line.number, 0)
        if nccl and "NCCL WARN" in line.text:
            weight = 3  # torch only prints the code of the error; what it was, NCCL itself says in a warning
        if not weight:
            weight = 2 if excerpt and not line.level and "Warning" not in line.text else 1
        hit = Hit(symptom.entry_id, line.number, line.text.strip(), groups, weight)
        known = hits.setdefault((symptom.entry_id, line.number), hit)
        if len(groups) > len(known.groups):
            hits[symptom.entry_id, line.number] = hit
    return _heaviest(hits.values())


def _heaviest(hits: Iterable[Hit]) -> list[Hit]:
    counts: dict[str, int] = {}
    kept = []
    for hit in sorted(hits, key=lambda h: (-h.weight, h.line)):
        counts[hit.entry_id] = counts.get(hit.entry_id, 0) + 1
        if counts[hit.entry_id] <= MOST_HITS:
            kept.append(hit)
    return sorted(kept, key=lambda h: (h.line, h.entry_id))
