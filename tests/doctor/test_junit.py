"""JUnit XML as CI systems read it: every state in its place, valid whatever the evidence holds."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.checks import discover
from hybridctl.doctor.diagnose import Diagnosis, Inputs, diagnose, text_stream
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome, Severity, Unknown
from hybridctl.doctor.junit import CHECK, FAULT, SOURCE, to_junit

# The needed and the allowed attributes of each element, and the order of its children, by the schema that junit.py names.
ATTRIBUTES = {
    "testsuite": ({"name", "tests", "failures", "errors"}, {"name", "tests", "failures", "errors", "skipped", "time"}),
    "testcase": ({"name", "classname", "time"}, {"name", "classname", "time"}),
    "failure": ({"message", "type"}, {"message", "type"}),
    "error": ({"message", "type"}, {"message", "type"}),
    "skipped": ({"message"}, {"message"}),
    "system-out": (set(), set()),
}
CHILDREN = {"testsuite": ["testcase"], "testcase": ["skipped", "error", "failure", "system-out"]}


def parsed(text: str) -> ElementTree.Element:
    """The suite, held against that form."""
    suite = ElementTree.fromstring(text)
    assert suite.tag == "testsuite"
    for element in suite.iter():
        needed, allowed = ATTRIBUTES[element.tag]
        assert needed <= set(element.keys()) <= allowed, element.tag
        order = CHILDREN.get(element.tag, [])
        places = [order.index(child.tag) for child in element]
        assert places == sorted(places)
    for case in suite:
        assert case.get("name")
        assert len([c for c in case if c.tag in ("skipped", "error", "failure")]) <= 1
    keys = [(case.get("classname"), case.get("name")) for case in suite]
    assert len(keys) == len(set(keys))
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(len(list(suite.iter(tag))))
    return suite


def case(suite: ElementTree.Element, kind: str, name: str) -> ElementTree.Element:
    (found,) = [c for c in suite if (c.get("classname"), c.get("name")) == (kind, name)]
    return found


def finding(id: str, severity: Severity = "error", text: str = "x") -> Finding:
    return Finding(
        id, f"title {text}", "config", severity, f"cause {text}", [Evidence("log.line", text, "", "log:1", text)],
        [Fix(f"fix {text}", f"run {text}")], ["https://example.com/1"],
    )  # fmt: skip


def made(*findings: Finding) -> Diagnosis:
    a, b = finding("a-error"), finding("b-warning", "warning")
    outcomes = [
        Outcome("good", "t", "ok", detail="looked"),
        Outcome("bad", "t", "finding", findings=[a, b, finding("dropped")]),
        Outcome("other", "t", "not-applicable", detail="no GPU"),
        Outcome("dark", "t", "unknown", detail="gpu.cc"),
    ]
    unknown = [
        Unknown("dark", "gpu.cc"),
        Unknown("NVIDIA driver and GPUs", "a driver"),
        Unknown("some-entry", "pkg.vllm"),
    ]
    return Diagnosis(Facts(), [*findings, a, b], outcomes, unknown)


def test_each_state_has_its_place() -> None:
    suite = parsed(to_junit(made(finding("known-fault"), finding("remark", "info"))))
    assert len(case(suite, CHECK, "good")) == 0
    bad = case(suite, CHECK, "bad")
    assert [c.tag for c in bad] == ["failure"]
    assert bad[0].get("message") == "title x; title x"
    assert bad[0].get("type") == "error"
    assert "[a-error]" in str(bad[0].text)
    assert "fix: fix x\n  run x" in str(bad[0].text)
    assert "dropped" not in str(bad[0].text)  # what the ranking left out is not told again
    assert case(suite, CHECK, "other")[0].get("message") == "not-applicable: no GPU"
    assert case(suite, CHECK, "dark")[0].get("message") == "unknown: gpu.cc"
    assert case(suite, FAULT, "known-fault")[0].tag == "failure"
    assert [c.tag for c in case(suite, FAULT, "remark")] == ["system-out"]
    assert case(suite, SOURCE, "NVIDIA driver and GPUs")[0].get("message") == "unknown: needs a driver"
    assert "some-entry" not in [c.get("name") for c in suite]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "2", "3")


@pytest.mark.parametrize(
    ("failing", "failed"), [(("error", "warning"), {"bad", "w", "e"}), (("error",), {"bad", "e"}), ((), set())]
)
def test_what_is_below_the_limit_is_no_failure(failing: tuple[str, ...], failed: set[str]) -> None:
    suite = parsed(to_junit(made(finding("w", "warning"), finding("e"), finding("i", "info")), failing))
    assert {c.get("name") for c in suite if c.find("failure") is not None} == failed
    told = case(suite, FAULT, "w")
    assert "title x" in str(told[0].text)  # told in either case
    if failing == ("error",):
        bad = case(suite, CHECK, "bad")
        assert [c.tag for c in bad] == ["failure", "system-out"]
        assert "[b-warning]" not in str(bad[0].text)


HOSTILE = [
    "]]>", "<![CDATA[x]]>", "</failure></testcase>", "&amp;&lt;&#0;", "\x00\x01\x0b\x1b[31m\x7f", "\ufffe\uffff\ud800\udfff",
    "🙂中文é", "a\r\nb\tc", "\x85\u2028", "<?xml version='1.0'?>", "password=", "Authorization: Bearer abcdefghij",
    "\"'", "--><!--", "--api-key", "Cookie: a=bcdefgh", "token: ",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_the_evidence_breaks_the_xml(text: str) -> None:
    nasty = made(finding(f"id-{text}", text=text))
    nasty.outcomes.append(Outcome("nasty", "t", "unknown", detail=text))
    nasty.unknown.append(Unknown(f"source {text}", text))
    document = to_junit(nasty)
    assert document.isascii()  # right in any encoding that a shell may have
    suite = parsed(document)
    failure = next(c for c in suite if str(c.get("name")).startswith("id-"))[0]
    if text in ("]]>", "</failure></testcase>", "🙂中文é", "<![CDATA[x]]>"):
        assert f"cause {text}" in str(failure.text)
    assert "abcdefghij" not in document


@given(st.text(max_size=60))
def test_any_text_is_valid(text: str) -> None:
    parsed(to_junit(made(finding(f"x{text}", text=text))))


def test_a_whole_diagnosis_names_every_check_once() -> None:
    log = "ERROR ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856). Lower it.\n" * 3
    suite = parsed(to_junit(diagnose(Inputs(log=text_stream(log), env="vLLM Version : 0.22.0\ndriver : 570.86.10\n"))))
    assert {c.get("name") for c in suite if c.get("classname") == CHECK} == {check.id for check in discover()}
    assert [c for c in suite if c.get("classname") == FAULT and c.find("failure") is not None]
