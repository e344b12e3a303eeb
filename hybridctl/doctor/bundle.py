"""A diagnosis made ready to be posted upstream: the facts that may be shown, everything in them that names somebody taken out."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hybridctl import __version__
from hybridctl.data import read_table
from hybridctl.doctor import report
from hybridctl.doctor.diagnose import Diagnosis
from hybridctl.doctor.facts.model import Fact, Facts, shown, spec_of
from hybridctl.doctor.findings import Evidence, Finding, Fix
from hybridctl.doctor.redact import Redactor
from hybridctl.globs import glob

SCHEMA_VERSION = 1
_THREADS = ("/issues/", "/pull/", "/discussions/", "/merge_requests/", "://discuss.", "://forums.", "://forum.")
_FORMS = {"serve": "vllm serve", "module": "python -m"}


def redactor_for(diagnosis: Diagnosis, texts: Iterable[str]) -> Redactor:
    """One that knows the names of this machine and those that the inputs give away.

    Args:
        diagnosis: whose facts and findings will be shown.
        texts: what the user handed in, and the lines of the log that will be shown.
    """
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    packages = [key.removeprefix("pkg.") for key in diagnosis.facts.keys() if key.startswith("pkg.")]  # noqa: SIM118
    redactor = Redactor([user], [socket.gethostname()], packages, _home())
    redactor.learn(texts)
    redactor.learn(shown(fact.value) for fact in diagnosis.facts)
    redactor.learn(item.quote for finding in diagnosis.findings for item in finding.evidence)
    return redactor


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A report.

    Attributes:
        document: as ``--json`` prints it. ``facts`` is as in ``--facts``, so that ``doctor --env`` reads the whole file.
        findings: those of the document, as objects.
    """

    document: dict[str, Any]
    findings: tuple[Finding, ...]

    def markdown(self) -> str:
        """The form for a bug report."""
        return _markdown(self.document, self.findings)


def make(diagnosis: Diagnosis, lines: Sequence[tuple[int, str]], redactor: Redactor) -> Bundle:
    """Everything that may be shown, looked through.

    Args:
        lines: lines of the log with their numbers.
    """
    clean = _Clean(redactor)
    findings = tuple(clean.finding(f) for f in diagnosis.findings)
    log = report.to_json(diagnosis)["log"]
    if log is not None:
        texts = redactor.lines([text for _, text in lines])
        log = {**redactor.value(log), "lines_shown": [[n, text] for (n, _), text in zip(lines, texts, strict=True)]}
    made = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "hybridctl", "version": __version__},
        "upstream": upstream(findings),
        "subject": {
            row["name"]: text
            for row in read_table("report.toml")["head"]
            if (text := ", ".join(clean.stated(diagnosis.facts, row["facts"])))
        },
        "launch": clean.launch(diagnosis.facts),
        "findings": [f.to_json() for f in findings],
        "log": log,
        "facts": [clean.fact(f) for f in diagnosis.facts if may_show(f.key)],
        "unknown": [{"check": u.check, "needs": redactor.text(u.needs)} for u in diagnosis.unknown],
        "notes": redactor.value(diagnosis.notes),
    }
    return Bundle({**made, "hidden": {kind: n for kind, n in sorted(redactor.counts.items()) if n}}, findings)


def upstream(findings: Sequence[Finding]) -> dict[str, Any] | None:
    """Where the first finding that has a source was reported, else where it is written down (``thread`` tells)."""
    for finding in findings:
        if finding.severity == "info" and finding is not findings[0]:
            continue
        if finding.source:
            threads = [s for s in finding.source if any(mark in s for mark in _THREADS)]
            url = (threads or finding.source)[0]
            return {
                "url": url,
                "thread": bool(threads),
                "finding": finding.id,
                "title": finding.title,
                "also": [s for s in finding.source if s != url],
            }
    return None


def first_words(known: dict[str, Any] | None) -> str:
    """What to read before filing anything, in one line of Markdown."""
    if known is None:
        return "Nothing that is known looks like this."
    title = report.code(known["title"])
    if known["thread"]:
        return f"This looks like {known['url']} ({title}): read it before you file a new one."
    return f"{title} is known, from no upstream thread: {known['url']}. Put it right before you file anything."


def may_show(key: str) -> bool:
    """Whether a fact may be part of a report."""
    table = read_table("report.toml")
    return any(glob(key, p) for p in table["facts"]) and not any(glob(key, p) for p in table["left_out"])


class _Clean:
    """The parts of a report, looked through."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    def fact(self, fact: Fact) -> dict[str, Any]:
        return {
            "key": fact.key,
            "value": self.redactor.value(fact.value, fact.key, _is_version(fact.key)),
            "source": fact.origin.source,
            "line": fact.origin.line,
        }

    def finding(self, finding: Finding) -> Finding:
        say = self.redactor.text
        return replace(
            finding,
            title=say(finding.title),
            cause=say(finding.cause),
            evidence=[
                Evidence(
                    e.fact,
                    self.redactor.value(e.value, e.fact, _is_version(e.fact)),
                    say(e.expected),
                    e.origin,
                    say(e.quote),
                )
                for e in finding.evidence
            ],
            fix=[Fix(say(f.text), say(f.command) if f.command else None) for f in finding.fix],
        )

    def stated(self, facts: Facts, keys: Sequence[str]) -> list[str]:
        found = []
        for key in keys:
            fact = facts.get(key)
            if fact is not None and may_show(key):
                text = shown(self.redactor.value(fact.value, key, _is_version(key)))
                found.append(text if key == keys[0] else f"{key.rpartition('.')[2].replace('_', ' ')} {text}")
        return found

    def launch(self, facts: Facts) -> str | None:
        """The launch line, put together from its facts: of a script nothing else is taken."""
        form = facts.value("command.form")
        if form is None:
            return None
        image, module = facts.value("command.image"), facts.value("command.module")
        words = [f"({form} {image})"] if image else []
        words.append(f"{_FORMS.get(str(form), 'vllm serve')} {module or ''}".strip())
        named = facts.get("model.name")
        if named is not None and not any(f.key == "flag.model" for f in facts):
            words.append(str(named.value))
        flags = [
            fact.origin.quote or f"--{fact.key.removeprefix('flag.')} {shown(fact.value)}"
            for fact in facts
            if fact.key.startswith("flag.") and fact.origin.source in ("command", "local") and may_show(fact.key)
        ]
        return self.redactor.text(" ".join([*words, *dict.fromkeys(" ".join(flag.split()) for flag in flags)]))


def _is_version(key: str) -> bool:
    spec = spec_of(key)
    return spec is not None and spec.kind == "version"


def _markdown(made: dict[str, Any], findings: Sequence[Finding]) -> str:
    lines: list[str] = []
    lines += [f"> {first_words(made['upstream'])}", ""]
    lines += ["## Environment", "", *(f"- {name}: {report.code(value)}" for name, value in made["subject"].items()), ""]
    if made["launch"]:
        lines += ["## Launch line", "", *fenced(made["launch"], "sh"), ""]
    loud = [f for f in findings if f.severity != "info"]
    lines += ["## What hybridctl found", ""]
    lines += ["Nothing above the level of information.", ""] if not loud else []
    for number, finding in enumerate(loud, 1):
        lines += ["#" + line if line.startswith("## ") else line for line in report.markdown_finding(number, finding)]
    if made["log"] and made["log"]["lines_shown"]:
        rows, last = [], None
        for number, text in made["log"]["lines_shown"]:
            if last is not None and number != last + 1:
                rows.append("…")
            rows.append(f"{number}: {text}")
            last = number
        lines += ["## Log", "", *fenced("\n".join(rows)), ""]
    facts = [f"{row['key']} = {shown(row['value'])}" for row in made["facts"]]
    lines += ["<details><summary>Facts</summary>", "", *fenced("\n".join(dict.fromkeys(facts))), "", "</details>", ""]
    hidden = ", ".join(f"{count} × {kind}" for kind, count in made["hidden"].items())
    lines.append(f"Made by hybridctl {__version__}. Hidden: {hidden or 'nothing'}.")
    return "\n".join(lines) + "\n"


def fenced(text: str, language: str = "") -> list[str]:
    """A code block, whose fence no line of the text can close."""
    longest = max((len(run) for run in report.backtick_runs(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *text.splitlines(), fence]
