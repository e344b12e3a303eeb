"""A diagnosis as JUnit XML, for the CI systems of fleets: one suite, a test case for every check and for every other finding.

Findings that count (``--fail-on``) are failures; other findings pass and are told in ``system-out``; what is unknown or does not
apply is skipped and says why. The form is that of Jenkins' schema, which is pytest's too; of equal names GitLab takes the first.
https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd
https://docs.gitlab.com/ci/testing/unit_test_reports
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from xml.etree import ElementTree

from hybridctl.doctor.diagnose import Diagnosis
from hybridctl.doctor.findings import SEVERITIES, Finding
from hybridctl.secrets import hide

CHECK, FAULT, SOURCE = "hybridctl.check", "hybridctl.fault", "hybridctl.source"
"""Class names of the cases: they and the name tell a case from all others, and stay the same from run to run."""


def to_junit(diagnosis: Diagnosis, failing: Collection[str] = ("error", "warning")) -> str:
    """The document, in ASCII, so that it is right in whatever encoding a shell writes it.

    Args:
        failing: severities that are failures.
    """
    suite = ElementTree.Element("testsuite", name="hybridctl doctor")
    shown = {finding.id: finding for finding in diagnosis.findings}
    told: set[str] = set()
    for outcome in diagnosis.outcomes:
        case = _case(suite, CHECK, outcome.check)
        if outcome.state == "finding":
            own = [shown[f.id] for f in outcome.findings if f.id in shown]
            told.update(f.id for f in own)
            _tell(case, own, failing)
        elif outcome.state != "ok":
            ElementTree.SubElement(case, "skipped", message=_xml(f"{outcome.state}: {outcome.detail}"))
    for finding in diagnosis.findings:
        if finding.id not in told:
            told.add(finding.id)
            _tell(_case(suite, FAULT, finding.id), [finding], failing)
    checks = {outcome.check for outcome in diagnosis.outcomes}
    for name, needs in {u.check: u.needs for u in diagnosis.unknown}.items():
        if (
            " " in name and name not in checks
        ):  # a source that could not be asked; entries that lack facts are far too many
            ElementTree.SubElement(_case(suite, SOURCE, name), "skipped", message=_xml(f"unknown: needs {needs}"))
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(1 for _ in suite.iter(tag))))
    suite.set("time", "0")
    ElementTree.indent(suite)
    document: bytes = ElementTree.tostring(suite, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


def _case(suite: ElementTree.Element, kind: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=kind, name=_xml(name), time="0")


def _tell(case: ElementTree.Element, findings: Sequence[Finding], failing: Collection[str]) -> None:
    loud = [f for f in findings if f.severity in failing]
    if loud:
        worst = min((f.severity for f in loud), key=SEVERITIES.index)
        failure = ElementTree.SubElement(case, "failure", type=worst, message=_xml("; ".join(f.title for f in loud)))
        failure.text = _xml("\n\n".join(_text(f) for f in loud))
    if quiet := [f for f in findings if f not in loud]:
        ElementTree.SubElement(case, "system-out").text = _xml("\n\n".join(_text(f) for f in quiet))


def _text(finding: Finding) -> str:
    lines = [f"{finding.severity}: {finding.title} [{finding.id}]", finding.cause]
    lines += [f"{e.origin}: {e.fact} = {e.value}" for e in finding.evidence]
    for fix in finding.fix:
        lines += [f"fix: {fix.text}", *(f"  {line}" for line in (fix.command or "").splitlines())]
    lines += [f"source: {source}" for source in finding.source]
    if finding.runbook:
        lines.append(f"step by step: hybridctl runbook {finding.runbook}")
    return "\n".join(lines)


def _xml(text: str) -> str:
    """XML 1.0 has no way to write most control codes, and a parser refuses the whole report for one of them."""
    return "".join(
        c if c in "\t\n" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE or ord(c) > 0xFFFF else " "
        for c in hide(text)
    )
