"""Checks: logic that the data of ``recipes/known_bad`` can't express. One module a check, found by being here.

A module defines ``CHECK``, a :class:`Check`. Its ``run`` gets a :class:`Context` and answers with one
:class:`~hybridctl.doctor.findings.Outcome`: findings, ok with what was looked at, not-applicable, or unknown with what is needed.
A check never prints, reads no files beyond the shipped tables, and never says ok for what it could not see.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hybridctl.doctor.facts.model import Facts, shown
from hybridctl.doctor.findings import Evidence, Finding, Outcome


@dataclass(frozen=True, slots=True)
class Context:
    """What a check may look at."""

    facts: Facts
    log: Any = None
    """The :class:`hybridctl.doctor.logs.LogReading`, or ``None`` when no log was given."""


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    title: str
    run: Callable[[Context], Outcome]
    phase: str = "load"
    """The stage of a start at which the fault shows (:data:`hybridctl.doctor.phases.PHASES`): what fails first is told first."""

    def ok(self, looked_at: str) -> Outcome:
        return Outcome(self.id, self.title, "ok", detail=looked_at)

    def unknown(self, needs: str) -> Outcome:
        return Outcome(self.id, self.title, "unknown", detail=needs)

    def not_applicable(self, why: str) -> Outcome:
        return Outcome(self.id, self.title, "not-applicable", detail=why)

    def found(self, *findings: Finding) -> Outcome:
        for finding in findings:
            finding.phase = self.phase
        return Outcome(self.id, self.title, "finding", findings=list(findings))


def evidence(facts: Facts, key: str, expected: str = "") -> Evidence:
    """Evidence from the fact that counts for ``key``; the fact must exist."""
    fact = facts.get(key)
    if fact is None:
        raise KeyError(key)
    return Evidence(key, shown(fact.value), expected, str(fact.origin), fact.origin.quote)


def discover() -> list[Check]:
    """Every check of this package, by module name."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return [importlib.import_module(f"{__name__}.{name}").CHECK for name in modules]
