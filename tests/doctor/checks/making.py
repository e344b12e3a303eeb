"""Facts from a plain dictionary, and a check by its id."""

from __future__ import annotations

from typing import Any

from hybridctl.doctor.checks import Check, Context, discover
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Finding, Outcome

_CHECKS = {check.id: check for check in discover()}


def check(id: str) -> Check:
    return _CHECKS[id]


def facts(values: dict[str, Any], source: str = "") -> Facts:
    """Each value as one fact, from the launch line where the key is a flag, else from the environment text."""
    made = Facts()
    for key, value in values.items():
        origin = source or ("command" if key.startswith(("flag.", "command.")) else "env")
        made.add(key, value, Origin(origin, 1, f"{key}: {value}"))
    return made


def run(id: str, values: dict[str, Any], source: str = "") -> Outcome:
    return check(id).run(Context(facts(values, source)))


def loud(outcome: Outcome) -> list[Finding]:
    return [f for f in outcome.findings if f.severity != "info"]
