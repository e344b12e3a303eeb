from hybridctl.doctor.findings import Evidence, Finding
from hybridctl.doctor.ranking import rank


def finding(id: str, severity: str = "error", certainty: int = 2, specificity: int = 1, **more: object) -> Finding:
    options = {"area": "config", "evidence": [Evidence("x", "y")], **more}
    return Finding(
        id=id, title=id, severity=severity, cause="c", certainty=certainty, specificity=specificity, **options
    )  # type: ignore[arg-type]


def ids(findings: list[Finding]) -> list[str]:
    return [f.id for f in findings]


def test_errors_before_warnings_before_information() -> None:
    assert ids(rank([finding("a", "info"), finding("b", "warning"), finding("c", "error")])) == ["c", "b", "a"]


def test_what_the_last_error_says_beats_what_facts_suggest() -> None:
    assert ids(rank([finding("facts", certainty=2, specificity=9), finding("line", certainty=3)])) == ["line", "facts"]


def test_a_cause_stands_before_what_it_explains_and_takes_its_rank() -> None:
    ranked = rank(
        [finding("end", certainty=3), finding("other", certainty=2), finding("root", certainty=1, explains=["end"])]
    )
    assert ids(ranked) == ["root", "end", "other"]
    assert ranked[1].explained_by == "root"


def test_two_that_explain_each_other_both_stay() -> None:
    assert sorted(ids(rank([finding("a", explains=["b"]), finding("b", explains=["a"])]))) == ["a", "b"]


def test_a_general_entry_on_the_same_line_is_dropped_for_the_closer_one() -> None:
    line = [Evidence("log line", "boom", origin="log:4", quote="boom")]
    ranked = rank([finding("general", specificity=2, evidence=line), finding("close", specificity=4, evidence=line)])
    assert ids(ranked) == ["close"]


def test_entries_on_different_lines_both_stay() -> None:
    ranked = rank([
        finding("general", specificity=2, evidence=[Evidence("log line", "a", origin="log:1")]),
        finding("close", specificity=4, evidence=[Evidence("log line", "b", origin="log:2")]),
    ])  # fmt: skip
    assert ids(ranked) == ["close", "general"]


def test_one_id_is_told_once() -> None:
    assert ids(rank([finding("a", certainty=1), finding("a", certainty=3)])) == ["a"]


def test_of_certain_failures_the_earliest_comes_first() -> None:
    ranked = rank([finding("late", specificity=9, phase="load"), finding("early", phase="import")])
    assert ids(ranked) == ["early", "late"]


def test_risks_are_told_by_closeness_whatever_their_stage() -> None:
    ranked = rank([
        finding("early", "warning", 1, 1, phase="import"), finding("close", "warning", 1, 5, phase="load"),
    ])  # fmt: skip
    assert ids(ranked) == ["close", "early"]


def test_an_unverified_claim_comes_last_and_is_not_dropped_for_a_closer_one() -> None:
    line = [Evidence("log line", "boom", origin="log:4", quote="boom")]
    claim = finding("a-claim", "info", 3, 9, evidence=line, confidence="unverified")
    sourced = finding("sourced", "info", 1, 1)
    close = finding("close", specificity=99, evidence=line)
    assert ids(rank([claim, sourced, close])) == ["close", "sourced", "a-claim"]
