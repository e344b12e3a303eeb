"""A diagnosis for people, at 80 columns and up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hybridctl.doctor.diagnose import Diagnosis
from hybridctl.doctor.findings import Finding
from hybridctl.doctor.knowledge import LINE
from hybridctl.doctor.report import _plural, counts, subject
from hybridctl.output import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "cyan"}
_MAX_QUOTE = 300


def render(diagnosis: Diagnosis, verbose: bool = False) -> list[RenderableType]:
    """The view, as things that a rich console prints. All foreign text is :class:`~rich.text.Text`, never markup."""
    out: list[RenderableType] = [_headline(diagnosis)]
    loud = [f for f in diagnosis.findings if f.severity != "info"]
    quiet = [f for f in diagnosis.findings if f.severity == "info"]
    for number, finding in enumerate(loud, 1):
        out += ["", *_finding(number, finding, verbose)]
    if quiet:
        out += ["", Text("For information", style="bold")]
        for finding in quiet:
            out += _information(finding, verbose)
    if diagnosis.log and len(diagnosis.log.phases) > 1:
        out += ["", _phases(diagnosis)]
    out += ["", *_closing(diagnosis, verbose)]
    return out


def _headline(diagnosis: Diagnosis) -> Text:
    about = subject(diagnosis)
    gpus = about["gpus"]
    unique = list(dict.fromkeys(gpus))
    parts = [
        " ".join(str(p) for p in (about["engine"], about["engine_version"]) if p),
        str(about["model"] or ""),
        ", ".join(f"{gpus.count(g)} × {g}" for g in unique),
        f"driver {about['driver']}" if about["driver"] else "",
    ]
    stated = " · ".join(plain(p) for p in parts if p)
    total = counts(diagnosis)
    text = Text(f"{_plural(total['error'], 'error')}, {_plural(total['warning'], 'warning')}", style="bold")
    if stated:
        text.append(f"   {stated}", style="dim")
    return text


def _finding(number: int, finding: Finding, verbose: bool) -> list[RenderableType]:
    title = Text(f"{number}. ")
    title.append(finding.severity.upper(), style=_STYLE[finding.severity])
    title.append(f"  {plain(finding.title)}", style="bold")
    out: list[RenderableType] = [title, Padding(_grid(_rows(finding, verbose)), (0, 0, 0, 3))]
    return out


def _rows(finding: Finding, verbose: bool) -> list[tuple[str, Text]]:
    rows = [("id", Text(f"{finding.id}  ({finding.area}, {finding.confidence})", style="dim"))]
    if finding.explained_by:
        rows.append(("follows", Text(f"from {finding.explained_by}")))
    for item in finding.evidence if verbose else finding.evidence[:4]:
        rows.append(
            (
                "seen" if item is finding.evidence[0] else "",
                _evidence_text(item.origin, item.fact, item.value, item.expected),
            )
        )
    rows.append(("why", Text(plain(finding.cause))))
    for index, fix in enumerate(finding.fix):
        rows.append(("fix" if index == 0 else "", Text(plain(fix.text))))
        if fix.command:
            command = Text(plain(fix.command), style="green", no_wrap=True, overflow="ignore")
            rows.append(("", command))
    for index, source in enumerate(finding.source if verbose else finding.source[:1]):
        rows.append(("source" if index == 0 else "", Text(plain(source), style="dim", no_wrap=True, overflow="ignore")))
    return rows


def _evidence_text(origin: str, fact: str, value: str, expected: str) -> Text:
    value = " ".join(plain(value).split())
    if len(value) > _MAX_QUOTE:
        value = value[: _MAX_QUOTE - 1] + "…"
    text = Text(f"{origin}: " if origin else "", style="dim")
    if fact == LINE:
        text.append(value, style="default")
    else:
        text.append(f"{fact} {value}", style="default")
        if expected:
            text.append(f"  (rule: {expected})")
    return text


def _information(finding: Finding, verbose: bool) -> list[RenderableType]:
    text = Text(f"- {plain(finding.title)}")
    text.append(f"  {finding.id}", style="dim")
    out: list[RenderableType] = [text]
    rows = _rows(finding, verbose)
    wanted = rows if verbose else [r for r in rows if r[0] in ("why",)] if finding.id == "unrecognised-error" else []
    if finding.id == "unrecognised-error":
        wanted = [r for r in rows if r[0] in ("seen", "why")]
    if wanted:
        out.append(Padding(_grid(wanted), (0, 0, 0, 2)))
    return out


def _grid(rows: list[tuple[str, Text]]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0), expand=False)
    table.add_column(width=7, style="dim")
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return table


def _phases(diagnosis: Diagnosis) -> Table:
    assert diagnosis.log is not None
    table = Table(title="Start phases in the log", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("phase")
    table.add_column("line", justify="right")
    table.add_column("seconds", justify="right")
    for phase in diagnosis.log.phases:
        table.add_row(phase.name, str(phase.line), "" if phase.seconds is None else f"{phase.seconds:.1f}")
    return table


def _closing(diagnosis: Diagnosis, verbose: bool) -> list[RenderableType]:
    total = counts(diagnosis)
    out: list[RenderableType] = []
    out += [Text(f"note: {plain(note)}", style="dim") for note in diagnosis.notes]
    out.append(
        Text(
            f"Checks: {total['checks_ok']} ok, {total['checks_finding']} with findings, {total['checks_unknown']} unknown, "
            f"{total['checks_not_applicable']} not applicable.",
            style="dim",
        )
    )
    if verbose:
        out += [Text(f"  ok: {o.check}: {plain(o.detail)}", style="dim") for o in diagnosis.outcomes if o.state == "ok"]
        out += [Text(f"  unknown: {u.check}: needs {plain(u.needs)}", style="dim") for u in diagnosis.unknown]
    elif diagnosis.unknown:
        out.append(
            Text(
                f"{_plural(len(diagnosis.unknown), 'question')} stayed open for want of facts: -v lists them.",
                style="dim",
            )
        )
    first = next((f for f in diagnosis.findings if f.severity != "info"), None)
    if first:
        out.append(Text(f"More on the first: hybridctl runbook {first.id}", style="dim"))
    return out
