"""Was each pinned release ever published? A pin on a version that does not exist ends in 'No matching distribution found'."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cache
from typing import Any

from packaging.version import Version

from hybridctl.data import read_table
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome, Severity


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read_table("published.toml")["package"]
    return table


@cache
def published(package: str) -> tuple[Version, ...]:
    """Releases of a package whose list is recorded, oldest first.

    Raises:
        KeyError: it is not recorded.
    """
    return tuple(Version(v) for v in _table()[package]["versions"])


def _release(facts: Facts, pin: Reading) -> Version | None:
    """The one release that is named; ``None`` for builds from elsewhere and candidates, which are in no list."""
    if pin.is_release:
        return pin.versions.exact
    # Of something installed "2023.1" may be cut short; a pin means what it says.
    if read.is_proposed(facts, pin.fact) and re.fullmatch(r"\d+\.\d+", pin.text):
        return Version(pin.text)
    return None


def _judge(facts: Facts, package: str, pin: Reading) -> Finding | bool | None:
    known = published(package)
    wanted = _release(facts, pin)
    # What is newer than the list came later.
    if wanted is None or not known[0] <= wanted <= known[-1]:
        return None
    if wanted in known:
        return True
    at = bisect_left(known, wanted)
    below, above = known[at - 1], known[at]
    severity: Severity = "error" if read.is_proposed(facts, pin.fact) else "info"
    return read.finding(
        f"no-such-release-{package}",
        f"There is no {package} {wanted}",
        "config",
        severity,
        f"The package index has never had {package} {wanted}, or has it no more: the releases next to it are {below} and {above}. "
        "pip ends in 'No matching distribution found'.",
        [pin.evidence(f"{below} or {above}")],
        [
            Fix(f"Pin one that exists, such as {below}.", f"python -m pip install '{package}=={below}'"),
            Fix("Or see all of them.", f"python -m pip index versions {package}"),
        ],
        [_table()[package]["source"]],
        "measured",
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    pins = {name: pin for name in _table() if (pin := read.version(facts, f"pkg.{name}"))}
    results = [_judge(facts, name, pin) for name, pin in pins.items()]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok("the pinned releases exist")
    return CHECK.unknown("one release of vllm, torch or another package whose list is recorded")


CHECK = Check("published", "pinned releases against what was published", run, phase="install")
