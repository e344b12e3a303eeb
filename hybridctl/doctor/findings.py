"""The result types of a diagnosis: what was found, and what could not be looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

UNVERIFIED = "unverified"
"""Confidence of what somebody claims and nothing public bears out: told as information, after everything that has a source."""

AREAS = (
    "arch-unknown", "transformers-mismatch", "weights", "parallelism", "kv-cache", "oom", "kernel-compile", "backend-choice",
    "driver-cuda", "torch-abi", "wsl-windows", "speculative", "output-quality", "slow", "network-hub", "nccl-shm",
    "quantization", "config",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a finding rests on. ``quote`` stands verbatim in the input that ``origin`` names; without it the finding falls."""

    fact: str
    value: str
    expected: str = ""
    origin: str = ""
    quote: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "fact": self.fact,
            "value": self.value,
            "expected": self.expected,
            "from": self.origin,
            "quote": self.quote,
        }


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do; ``command`` can be pasted into a shell, or is ``None``."""

    text: str
    command: str | None = None


@dataclass(slots=True)
class Finding:
    """One fault, with its evidence and its cure."""

    id: str
    title: str
    area: str
    severity: Severity
    cause: str
    evidence: list[Evidence] = field(default_factory=list)
    fix: list[Fix] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    confidence: str = "inferred"
    runbook: str = ""
    """The runbook that says what to do step by step; the diagnosis fills it in (:mod:`hybridctl.doctor.runbooks`)."""
    aliases: list[str] = field(default_factory=list)
    explains: list[str] = field(default_factory=list)
    """Ids of findings that are only the visible end of this one."""
    explained_by: str | None = None
    certainty: int = 2
    """3: the error that ended the run says so. 2: the facts leave no other reading, or another error line says so.
    1: a warning line, or a risk that the facts point to."""
    phase: str = "load"
    """The stage of a start at which the fault shows."""
    specificity: int = 0
    """How many conditions the facts met: the more, the closer the match."""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "aliases": self.aliases,
            "area": self.area,
            "severity": self.severity,
            "state": "finding",
            "title": self.title,
            "evidence": [e.to_json() for e in self.evidence],
            "cause": self.cause,
            "fix": [{"text": f.text, "command": f.command} for f in self.fix],
            "source": self.source,
            "confidence": self.confidence,
            "runbook": self.runbook,
            "explained_by": self.explained_by,
        }


@dataclass(frozen=True, slots=True)
class Unknown:
    """A check that could not be made, and what it would need."""

    check: str
    needs: str


@dataclass(slots=True)
class Outcome:
    """What one check says: findings, or that it looked and found nothing (ok), or why it did not look."""

    check: str
    title: str
    state: Literal["ok", "finding", "not-applicable", "unknown"]
    findings: list[Finding] = field(default_factory=list)
    detail: str = ""
    """ok: what was looked at. not-applicable: why. unknown: what is needed."""
