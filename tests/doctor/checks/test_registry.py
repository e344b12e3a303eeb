"""Classes and types that no recipe speaks of, against the tables of releases."""

from __future__ import annotations

from typing import Any

import pytest

from hybridctl.doctor.checks import Context
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Outcome
from tests.doctor.checks.making import check


def judge(vllm: str, arch: str | list[str], transformers: str = "", source: str = "config", **more: Any) -> Outcome:
    facts = Facts()
    values = {"engine": "vllm", "pkg.vllm": vllm, **({"pkg.transformers": transformers} if transformers else {})}
    values |= {key.replace("__", ".").replace("_X_", "-"): value for key, value in more.items()}
    for key, value in values.items():
        origin = "config" if key.startswith(("config.", "model.")) else "command" if key.startswith("flag.") else "env"
        facts.add(key, value, Origin(origin, 1, f"{key}: {value}"))
    names = [arch] if isinstance(arch, str) else arch
    if names:
        facts.add("model.architecture", names, Origin(source, 1, '"architectures"'))
    return check("model-support").run(Context(facts))


@pytest.mark.parametrize(
    ("vllm", "arch", "transformers", "state"),
    [
        ("0.20.0", "InternS1ProForConditionalGeneration", "", "ok"),
        ("0.8.5", "InternS1ProForConditionalGeneration", "", "finding"),
        ("0.24.0", "InternLMForCausalLM", "", "finding"),
        ("0.23.1", "InternLMForCausalLM", "", "unknown"),
        ("0.23.0", "InternLMForCausalLM", "", "ok"),
        ("0.23.0+cu129", "InternLMForCausalLM", "", "ok"),
        (">=0.24", "InternLMForCausalLM", "", "unknown"),
        ("0.24.0rc1.dev3+gabc", "InternLMForCausalLM", "", "unknown"),
        ("0.9.0", "SmolLM3ForCausalLM", "", "unknown"),
        ("0.9.0", "SmolLM3ForCausalLM", "4.53.3", "ok-or-unknown"),
        ("0.9.0", "SmolLM3ForCausalLM", "4.52.4", "finding"),
        ("0.6.6", "SmolLM3ForCausalLM", "", "finding"),
        ("0.20.0", "NobodyForCausalLM", "", "unknown"),
        ("0.24.0", ["InternLMForCausalLM", "LlamaForCausalLM"], "", "ok"),
        ("0.24.0", ["InternLMForCausalLM", "NobodyForCausalLM"], "", "unknown"),
    ],
)
def test_classes(vllm: str, arch: str | list[str], transformers: str, state: str) -> None:
    assert judge(vllm, arch, transformers).state in state.split("-or-")


def test_the_way_out_is_told() -> None:
    [old] = judge("0.8.5", "InternS1ProForConditionalGeneration").findings
    assert "not serve" in old.title
    assert old.title.endswith("yet")
    assert old.fix[0].text.startswith("Upgrade vLLM to")
    [gone] = judge("0.24.0", "InternLMForCausalLM").findings
    assert gone.title.endswith("any more")
    assert "vllm==0.23.0" in gone.fix[0].command
    [plugin] = judge("0.19.0", "MBartForConditionalGeneration", "4.57.6").findings
    assert "bart-plugin" in plugin.fix[0].text


@pytest.mark.parametrize(
    "more",
    [
        {"config__auto_map.AutoModel": "modeling.X"},
        {"flag__model_X_impl": "transformers"},
        {"flag__hf_X_overrides.architectures": "x"},
        {"flag__runner": "pooling"},
        {"env__VLLM_PLUGINS": "mine"},
        {"pkg__vllm_X_ascend": "0.8.5"},
        {"gpu__vendor": "ascend"},
        {"command__image": "vllm/vllm-openai:interns1"},
        {"log__reached": "load"},
    ],
)
def test_what_may_bring_the_class_silences(more: dict[str, Any]) -> None:
    assert judge("0.8.5", "InternS1ProForConditionalGeneration").findings
    assert not judge("0.8.5", "InternS1ProForConditionalGeneration", **more).findings


def test_code_of_a_removed_class_does_not_bring_it_back() -> None:
    assert judge("0.24.0", "InternLMForCausalLM", **{"config__auto_map.AutoModel": "modeling.X"}).findings


def test_only_a_config_tells_whether_code_comes_along() -> None:
    assert not judge("0.8.5", "InternS1ProForConditionalGeneration", source="log").findings


def test_a_recipe_does_not_refuse_what_the_backend_takes() -> None:
    """Olmo3 came to vLLM later than to transformers, whose class the backend serves."""
    assert judge("0.10.2", "Olmo3ForCausalLM", "4.57.6").state != "finding"
    assert judge("0.10.2", "Olmo3ForCausalLM", "4.56.2").state == "finding"


def test_another_head_of_a_known_family_is_judged_by_its_own_name() -> None:
    assert judge("0.9.2", "Qwen3ForSequenceClassification", model__type=["qwen3"]).state == "ok"
    assert judge("0.33.0", "Qwen3ForSequenceClassification", model__type=["qwen3"]).state == "unknown"  # converted


@pytest.mark.parametrize(
    ("vllm", "transformers", "more", "state"),
    [
        ("0.11.0", "4.52.4", {}, "finding"),
        ("0.11.0", "4.53.3", {}, "ok"),
        ("0.11.0", "4.53.0", {}, "unknown"),
        ("0.11.0", "4.52.4", {"flag__trust_X_remote_X_code": True}, "unknown"),
        ("0.11.0", "4.52.4", {"engine": "sglang"}, "unknown"),
        ("0.11.0", "4.52.4", {"engine": "trl"}, "finding"),
    ],
)
def test_types(vllm: str, transformers: str, more: dict[str, Any], state: str) -> None:
    assert judge(vllm, [], transformers, model__type=["smollm3"], **more).state == state


def test_a_type_that_vllm_reads_itself_is_not_asked_of_transformers() -> None:
    assert judge("0.16.0", [], "4.57.6", model__type=["qwen3_asr"]).state != "finding"
    assert judge("0.15.0", [], "4.57.6", model__type=["qwen3_asr"]).state == "finding"
