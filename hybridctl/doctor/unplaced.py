"""What to say of a crash that no entry knows: the error itself, the stage at which it arose, and the nearest entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridctl.data import read_table
from hybridctl.doctor.findings import Evidence, Finding, Fix
from hybridctl.doctor.knowledge import LINE, Knowledge
from hybridctl.doctor.search import nearest
from hybridctl.globs import glob
from hybridctl.patterns import late

if TYPE_CHECKING:
    from hybridctl.doctor.logreader.records import LogError
    from hybridctl.doctor.logs import LogReading

_FRAME = late(r'File "(?P<path>[^"]{1,400})", line \d+(?:, in (?P<function>\S+))?')


def place(log: LogReading, knowledge: Knowledge) -> list[Finding]:
    """Findings for the innermost error of a log. The stage is read from the frames, so it is inferred, and says so."""
    error = log.innermost
    if error is None or error.benign or error.survived:
        return []
    findings = [_unrecognised(error, knowledge)]
    site = None if error.soft else _site(error)
    if site:
        findings.insert(0, _at_site(error, site))
    return findings


def _unrecognised(error: LogError, knowledge: Knowledge) -> Finding:
    near = nearest(knowledge, error.text, 3)
    wording = "; ".join(f"{e.id} ({e.title})" for e in near)
    return Finding(
        id="unrecognised-error",
        title="The log ends in an error that the knowledge base does not know",
        area=near[0].area if near else "config",
        severity="info",
        cause=f"No entry matches this error. Nearest by wording only: {wording or 'none'}.",
        evidence=[_evidence(error)],
        fix=[Fix("Read the page of a near entry.", f"hybridctl runbook {near[0].id}")] if near else [],
        confidence="unresolved",
        certainty=1,
    )


def _at_site(error: LogError, site: dict[str, str]) -> Finding:
    return Finding(
        id=f"failed-while-{site['area']}",
        title=f"It failed while {site['stage']}",
        area=site["area"],
        severity="warning",
        cause=f"The deepest frame of the error lies in {site['frame']}: that is the code for {site['stage']}. "
        "No known fault matches, so this is the stage, not yet the cause.",
        evidence=[_evidence(error)],
        fix=[Fix("Go through the runbook of this stage.", f"hybridctl runbook {site['area']}")],
        confidence="inferred",
        certainty=1,
    )


def _evidence(error: LogError) -> Evidence:
    return Evidence(LINE, error.headline, "", f"log:{error.line}", error.headline.split(": ", 1)[-1] or error.headline)


def _site(error: LogError) -> dict[str, str] | None:
    """The row of the table that the deepest known frame falls under."""
    rows: list[dict[str, str]] = read_table("error_sites.toml")["site"]
    for frame in reversed(list(_FRAME.finditer(error.text))):
        path = frame["path"].replace("\\", "/")
        for row in rows:
            if glob(path, row["path"]) and glob(frame["function"] or "", row.get("function", "*")):
                return {
                    **row,
                    "frame": path.rsplit("/", 1)[-1] + (f", {frame['function']}" if frame["function"] else ""),
                }
    return None
