import pytest

from hybridctl.doctor.conditions import check_condition, evaluate
from hybridctl.doctor.facts.model import Facts, Origin

HERE = Origin("env", 3, "as written")


def facts(**items: object) -> Facts:
    result = Facts()
    for key, value in items.items():
        result.add(
            key.replace("__", ".").replace("_", "-") if key.startswith("flag") else key.replace("__", "."), value, HERE
        )  # type: ignore[arg-type]
    return result


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ({"engine": "vllm"}, True),
        ({"engine": "VLLM"}, True),
        ({"engine": "sglang"}, False),
        ({"engine": ["sglang", "vllm"]}, True),
        ({"pkg.vllm": ">=0.29,<0.30"}, True),
        ({"pkg.vllm": ">=0.30"}, False),
        ({"pkg.torch": ">=2"}, None),
        ({"gpu.names": "*H100*"}, True),
        ({"gpu.names": "*B200*"}, False),
        ({"gpu.count": ">4"}, True),
        ({"gpu.count": 8}, True),
        ({"gpu.count": "<8"}, False),
        ({"platform.wsl": False}, True),
        ({"platform.wsl": True}, False),
        ({"platform.container": True}, None),
        ({"any": [{"engine": "sglang"}, {"gpu.count": 8}]}, True),
        ({"any": [{"engine": "sglang"}, {"pkg.torch": ">=2"}]}, None),
        ({"any": [{"engine": "sglang"}, {"gpu.count": 2}]}, False),
        ({"not": {"engine": "sglang"}}, True),
        ({"not": {"pkg.torch": ">=2"}}, None),
        ({"engine": "vllm", "pkg.torch": ">=2"}, None),
        ({"engine": "sglang", "pkg.torch": ">=2"}, False),
    ],
)
def test_three_values(condition: dict[str, object], answer: bool | None) -> None:
    known = Facts()
    for key, value in {
        "engine": "vllm", "pkg.vllm": "0.29.0", "gpu.names": ["NVIDIA H100"], "gpu.count": 8, "platform.wsl": False,
    }.items():  # fmt: skip
        known.add(key, value, HERE)  # type: ignore[arg-type]
    assert evaluate(condition, known).value is answer


def test_flag_that_is_not_on_a_known_line_is_unset() -> None:
    line = Facts()
    line.add("command.form", "serve", Origin("command"))
    line.add("flag.enable-prefix-caching", True, Origin("command", None, "--enable-prefix-caching"))
    assert evaluate({"flag.speculative-config": "<unset>"}, line).value is True
    assert evaluate({"flag.speculative-config": "<set>"}, line).value is False
    assert evaluate({"flag.enable-prefix-caching": "<unset>"}, line).value is False
    assert evaluate({"flag.enable-prefix-caching": True}, line).value is True


def test_without_a_line_no_flag_is_known() -> None:
    assert evaluate({"flag.speculative-config": "<unset>"}, Facts()).value is None
    assert evaluate({"flag.enable-prefix-caching": True}, Facts()).value is None


def test_unreadable_version_is_unknown_and_a_readable_second_statement_counts() -> None:
    known = Facts()
    known.add("pkg.vllm", "docker latest", Origin("log", 1, "docker latest"))
    assert evaluate({"pkg.vllm": ">=0.20"}, known).value is None
    known.add("pkg.vllm", "0.22.0", Origin("env", 1, "0.22.0"))
    assert evaluate({"pkg.vllm": ">=0.20"}, known).value is True


def test_evidence_quotes_the_facts_that_met_the_condition() -> None:
    known = Facts()
    known.add("pkg.vllm", "0.22.0", Origin("env", 7, "vLLM Version : 0.22.0"))
    (item,) = evaluate({"pkg.vllm": ">=0.20"}, known).evidence
    assert (item.value, item.expected, item.origin, item.quote) == (
        "0.22.0",
        ">=0.20",
        "env:7",
        "vLLM Version : 0.22.0",
    )


def test_missing_facts_are_named() -> None:
    assert evaluate({"pkg.vllm": ">=0.20", "any": [{"gpu.cc": ">=12"}]}, Facts()).missing == ["pkg.vllm", "gpu.cc"]


@pytest.mark.parametrize(
    "condition",
    [
        {"nonsense": "x"},
        {"pkg.vllm": "newer"},
        {"platform.wsl": "yes"},
        {"gpu.count": "many"},
        {"any": []},
        {"not": "x"},
        "text",
    ],
)
def test_bad_conditions_are_named(condition: object) -> None:
    assert check_condition(condition)


def test_what_was_said_is_matched_on_any_statement_and_silence_is_unknown() -> None:
    facts = Facts()
    assert evaluate({"report.said": "garbage"}, facts).value is None
    for text in ("speed is fine", "symptom : Garbage after 3 turns"):
        facts.add("report.said", text, Origin("env", 1, text))
    assert evaluate({"report.said": r"\bgarbage\b"}, facts).value is True
    assert evaluate({"report.said": "hang"}, facts).value is None
    assert check_condition({"report.said": "(["})
