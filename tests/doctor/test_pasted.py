from hybridctl.doctor.knowledge import Symptom
from hybridctl.doctor.pasted import find_symptoms

SYMPTOMS = [Symptom("stuck", "pynccl", r"(?:stuck|hang).*(?P<where>pynccl\.py)"), Symptom("bang", "!!!!!", "")]


def test_a_symptom_between_facts_is_seen() -> None:
    (hit,) = find_symptoms("Nvidia driver version : 560\r\n> symptom : stuck in pynccl.py\n", SYMPTOMS)
    assert (hit.entry_id, hit.line, hit.source, hit.text) == ("stuck", 2, "env", "symptom : stuck in pynccl.py")
    assert hit.groups == {"where": "pynccl.py"}


def test_an_anchor_alone_is_not_enough_when_there_is_a_pattern() -> None:
    assert find_symptoms("pynccl==2.21", SYMPTOMS) == []


def test_each_symptom_is_told_once() -> None:
    assert [h.line for h in find_symptoms("output : !!!!!\noutput : !!!!!", SYMPTOMS)] == [1]
