"""Facts about the model: which source says what, and with which quote."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.facts.model_facts import model_facts
from hybridctl.model.config import read_config

FLASH = {
    "architectures": ["Qwen4ExpForConditionalGeneration"],
    "model_type": "qwen4_exp",
    "text_config": {
        "model_type": "qwen4_exp_text",
        "num_key_value_heads": 2,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "vision_config": {"num_heads": 16},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def read(name: str | None, document: Any = None) -> Facts:
    text = None if document is None else json.dumps(document, indent=2)
    facts = model_facts(name, None if text is None else read_config(text), text)
    for fact in facts:
        assert fact.origin.quote in (text if fact.origin.source == "config" else f"{name} {text}"), fact
        if text and fact.origin.source == "config":
            assert fact.origin.line is not None
            assert (
                text.splitlines()[fact.origin.line - 1].strip() in fact.origin.quote
                or fact.origin.quote.splitlines()[0] in text
            )
    return facts


def get(facts: Facts, key: str) -> Fact:
    found = facts.get(key)
    assert found is not None, key
    return found


def test_config_is_quoted_to_the_letter() -> None:
    facts = read(None, FLASH)
    heads = get(facts, "config.num_key_value_heads")
    assert (heads.value, heads.origin.source, heads.origin.quote) == (2, "config", '"num_key_value_heads": 2')
    assert get(facts, "config.vision_config.num_heads").value == 16
    assert get(facts, "config.quantization_config.weight_block_size").value == ["128", "128"]
    assert get(facts, "model.quant").value == ["fp8", "fp8-block"]
    assert get(facts, "model.quant").origin.quote == '"quant_method": "fp8"'
    assert get(facts, "model.layers").value == ["gdn", "sparse"]
    assert get(facts, "model.hybrid").value is True
    assert get(facts, "model.type").value == ["qwen4_exp", "qwen4_exp_text"]
    assert get(facts, "model.family").value == "qwen4_exp"


def test_text_config_comes_before_the_top_level() -> None:
    facts = read(None, {"num_attention_heads": 1, "text_config": {"num_attention_heads": 24}})
    assert facts.value("config.num_attention_heads") == 24


def test_the_recipe_fills_what_the_name_alone_leaves_open() -> None:
    facts = read("Qwen/Qwen3.8-Flash-Next-FP8")
    assert get(facts, "model.quant").origin.source == "model"
    assert get(facts, "model.family").origin.source == "model"
    layers = get(facts, "model.layers")
    assert (layers.value, layers.origin.source, layers.origin.quote) == (
        ["gdn", "sparse"],
        "recipe",
        "Qwen/Qwen3.8-Flash-Next-FP8",
    )
    assert facts.value("config.num_attention_heads") == 24
    assert facts.value("model.size_gib") == 172.8


def test_config_wins_over_the_recipe_and_over_the_name() -> None:
    facts = read(
        "Qwen/Qwen3.8-Flash-Next-FP8", {"num_attention_heads": 12, "quantization_config": {"quant_method": "awq"}}
    )
    assert facts.value("config.num_attention_heads") == 12
    assert facts.value("model.quant") == ["awq"]
    other = read("Qwen/Qwen3.8-Flash-Next", {"architectures": ["Qwen3_5ForConditionalGeneration"]})
    assert other.value("model.family") == "qwen3_5"
    assert other.get("config.num_attention_heads") is None


def test_a_class_alone_tells_what_its_family_shares() -> None:
    facts = read(None, {"architectures": ["NemotronHForCausalLM"]})
    assert facts.value("model.hybrid") is True
    assert get(facts, "model.layers").origin.source == "recipe"
    assert get(facts, "model.layers").origin.quote == '"architectures": [\n    "NemotronHForCausalLM"\n  ]'
    assert facts.get("model.moe") is None


def test_what_is_not_said_is_not_stated() -> None:
    assert len(read(None)) == 0
    assert len(read("MODEL")) == 0
    facts = read("Qwen3.5")
    assert facts.value("model.hybrid") is True
    assert facts.get("model.moe") is None
    assert facts.get("model.architecture") is None
    assert facts.get("model.quant") is None
    assert [f.key for f in read("some/unknown-model")] == ["model.name"]


def test_unquantised_only_when_the_whole_file_says_so() -> None:
    whole = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "vocab_size": 9,
    }
    assert read(None, whole).value("model.quant") == ["none"]
    assert read("x/Llama-3.1-8B-NVFP4", whole).value("model.quant") == ["nvfp4"]
    assert read(None, {"architectures": ["LlamaForCausalLM"]}).get("model.quant") is None


@given(st.text(), st.text())
def test_never_raises(name: str, text: str) -> None:
    model_facts(name, read_config(text), text)
