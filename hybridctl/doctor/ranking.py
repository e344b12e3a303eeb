"""Order findings so that the root cause comes first, and drop what a closer match already says."""

from __future__ import annotations

from hybridctl.doctor.findings import SEVERITIES, UNVERIFIED, Finding
from hybridctl.doctor.knowledge import LINE
from hybridctl.doctor.phases import PHASES

# Between equal findings: what breaks earlier in a start is likelier the root of what breaks later.
_AREA_ORDER = {
    area: i
    for i, area in enumerate(
        (
            "network-hub", "driver-cuda", "torch-abi", "wsl-windows", "transformers-mismatch", "arch-unknown", "weights",
            "quantization", "parallelism", "nccl-shm", "speculative", "kernel-compile", "backend-choice", "kv-cache", "oom",
            "output-quality", "config", "slow",
        )
    )
}  # fmt: skip


def rank(findings: list[Finding]) -> list[Finding]:
    """The findings in the order in which a person should read them; explained ones follow their cause."""
    findings = _drop_subsumed(_unique(findings))
    present = {f.id: f for f in findings}
    for finding in findings:
        for visible in finding.explains:
            end = present.get(visible)
            if (
                end is not None
                and end is not finding
                and not _leads_to(finding, end, present)
                and end.explained_by is None
            ):
                end.explained_by = finding.id
    roots = [f for f in findings if f.explained_by is None]
    ordered: list[Finding] = []
    for root in sorted(roots, key=lambda f: _key(f, findings)):
        ordered.append(root)
        _append_explained(root, findings, ordered)
    return ordered


def _append_explained(cause: Finding, findings: list[Finding], ordered: list[Finding]) -> None:
    for end in sorted((f for f in findings if f.explained_by == cause.id), key=lambda f: _key(f, [])):
        if end not in ordered:
            ordered.append(end)
            _append_explained(end, findings, ordered)


def _leads_to(cause: Finding, end: Finding, present: dict[str, Finding]) -> bool:
    """Whether ``cause`` itself is explained, over any number of steps, by ``end``: a circle would hide both."""
    seen = set()
    step: Finding | None = cause
    while step is not None and step.explained_by and step.id not in seen:
        if step.explained_by == end.id:
            return True
        seen.add(step.id)
        step = present.get(step.explained_by)
    return False


def _key(finding: Finding, findings: list[Finding]) -> tuple[int, bool, int, int, int, int, str]:
    ends = [f for f in findings if f.explained_by == finding.id]
    severity = min(SEVERITIES.index(f.severity) for f in [finding, *ends])
    certainty = max(f.certainty for f in [finding, *ends])
    specificity = max(f.specificity for f in [finding, *ends])
    # Of several certain failures that no log has shown, the one that stops the start first is met first.
    certain = finding.severity == "error" and certainty == 2
    phase = PHASES.index(finding.phase) if certain and finding.phase in PHASES else 0
    return (
        severity,
        finding.confidence == UNVERIFIED,
        -certainty,
        phase,
        -specificity,
        _AREA_ORDER.get(finding.area, 99),
        finding.id,
    )


def _unique(findings: list[Finding]) -> list[Finding]:
    best: dict[str, Finding] = {}
    for finding in findings:
        known = best.get(finding.id)
        if known is None or (finding.certainty, finding.specificity) > (known.certainty, known.specificity):
            best[finding.id] = finding
    return list(best.values())


def _drop_subsumed(findings: list[Finding]) -> list[Finding]:
    """A general entry that rests on the same log line as a closer one of its area adds nothing.

    What somebody claims without a trace is another statement about the line, not a general form of a sourced one: it stays.
    """
    kept = []
    for finding in findings:
        if finding.confidence == UNVERIFIED:
            kept.append(finding)
            continue
        line = _log_line(finding)
        closer = (
            other
            for other in findings
            if other is not finding
            and line is not None
            and _log_line(other) == line
            and other.area == finding.area
            and (other.specificity, other.id) > (finding.specificity, finding.id)
            and SEVERITIES.index(other.severity) <= SEVERITIES.index(finding.severity)
        )
        if next(closer, None) is None:
            kept.append(finding)
    return kept


def _log_line(finding: Finding) -> str | None:
    return next((e.origin for e in finding.evidence if e.fact == LINE), None)
