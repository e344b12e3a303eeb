"""A config.json is read whatever it looks like, and what it says is told apart from what it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.model.config import read_config
from hybridctl.model.json_spans import key_spans
from hybridctl.model.layers import mixers


def layers(**fields: Any) -> list[str] | None:
    return read_config(fields).layers


class TestLayers:
    def test_both_spellings_of_a_flash_next_layer(self) -> None:
        for spelling in ("full_attention", "qwen_sparse_attention", "indexed_attention"):
            config = read_config(
                {"model_type": "qwen4_exp", "text_config": {"layer_types": ["linear_attention"] * 3 + [spelling]}}
            )
            assert config.layers == ["gdn", "gdn", "gdn", "sparse"], spelling
            assert config.hybrid is True

    def test_mamba_spellings_of_granite(self) -> None:
        for state, full in (("mamba", "attention"), ("linear_attention", "full_attention")):
            assert layers(model_type="granitemoehybrid", layer_types=[state, full]) == ["mamba2", "full"]

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            (
                {"model_type": "qwen3_next", "num_hidden_layers": 8, "full_attention_interval": 4},
                ["gdn"] * 3 + ["full"],
            ),
            (
                {"model_type": "jamba", "num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 2},
                ["mamba1", "mamba1", "full", "mamba1"],
            ),
            ({"model_type": "plamo2", "num_hidden_layers": 8, "mamba_step": 4}, ["mamba2", "mamba2", "full", "mamba2"]),
            ({"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": 2}, ["sliding", "full"]),
            ({"model_type": "bailing_hybrid", "num_hidden_layers": 4, "layer_group_size": 2}, ["lightning", "full"]),
        ],
    )
    def test_periods(self, fields: dict[str, Any], expected: list[str]) -> None:
        count = fields["num_hidden_layers"]
        assert layers(**fields) == expected * (count // len(expected))

    def test_nemotron_pattern(self) -> None:
        got = layers(model_type="nemotron_h", hybrid_override_pattern="M-M*E")
        assert got == ["mamba2", "mlp", "mamba2", "full", "moe"]
        assert mixers(got or []) == ["mamba2", "full"]

    def test_kimi_counts_from_one(self) -> None:
        linear = {"kda_layers": [1, 2, 3], "full_attn_layers": [4]}
        assert layers(model_type="kimi_linear", num_hidden_layers=4, linear_attn_config=linear) == ["kda"] * 3 + [
            "full"
        ]

    def test_minimax_codes(self) -> None:
        assert layers(architectures=["MiniMaxText01ForCausalLM"], attn_type_list=[0, 0, 1]) == [
            "lightning",
            "lightning",
            "full",
        ]

    def test_ling_3_ends_in_full_layers(self) -> None:
        assert layers(model_type="bailing_moe_v3", num_hidden_layers=5, layer_group_size=2) == [
            "kda",
            "full",
            "kda",
            "full",
            "full",
        ]

    def test_falcon_h1_runs_both_in_every_layer(self) -> None:
        config = read_config({"model_type": "falcon_h1", "num_hidden_layers": 2})
        assert config.layers == ["parallel", "parallel"]
        assert mixers(config.layers or []) == ["full", "mamba2"]
        assert config.hybrid is True

    def test_the_list_wins_over_the_interval(self) -> None:
        config = read_config(
            {
                "model_type": "qwen3_next",
                "num_hidden_layers": 2,
                "full_attention_interval": 4,
                "layer_types": ["full_attention"] * 2,
            }
        )
        assert config.layers == ["full", "full"]
        assert config.layers_from == "layer_types"

    def test_nothing_stated_is_not_known(self) -> None:
        config = read_config({"architectures": ["Qwen3NextForCausalLM"]})
        assert config.layers is None
        assert config.hybrid is None

    def test_a_disagreement_is_a_problem(self) -> None:
        config = read_config({"model_type": "qwen3_next", "num_hidden_layers": 3, "layer_types": ["full_attention"]})
        assert any("num_hidden_layers says 3" in p for p in config.problems)


class TestQuantisation:
    @pytest.mark.parametrize(
        ("stated", "expected"),
        [
            ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ["fp8", "fp8-block"]),
            ({"quant_method": "fp8"}, ["fp8"]),
            ({"quant_method": "awq", "bits": 4}, ["awq"]),
            ({"quant_method": "gptq", "bits": 4}, ["gptq", "int4"]),
            ({"quant_method": "auto-round", "bits": 4}, ["auto-round", "int4"]),
            ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ["nvfp4"]),
            ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, ["fp8"]),
            (
                {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}},
                },
                ["compressed-tensors", "int4"],
            ),
            (
                {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "strategy": "block"}}},
                },
                ["compressed-tensors", "fp8", "fp8-block"],
            ),
            (
                {
                    "quant_method": "compressed-tensors",
                    "format": "nvfp4-pack-quantized",
                    "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float"}}},
                },
                ["compressed-tensors", "nvfp4"],
            ),
        ],
    )
    def test_names(self, stated: dict[str, Any], expected: list[str]) -> None:
        assert read_config({"quantization_config": stated}).quant == expected

    def test_parts(self) -> None:
        config = read_config(
            {
                "quantization_config": {
                    "quant_method": "fp8", "weight_block_size": [128, 128], "kv_cache_scheme": {"num_bits": 8},
                    "modules_to_not_convert": ["lm_head"],
                }
            }
        )  # fmt: skip
        assert config.weight_block_size == [128, 128]
        assert config.kv_cache_scheme == {"num_bits": 8}
        assert config.ignored_modules == ["lm_head"]


class TestReading:
    def test_nested_text_config(self) -> None:
        config = read_config(
            {
                "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "dtype": "bfloat16",
                "text_config": {"model_type": "qwen3_5_moe_text", "num_attention_heads": 16, "num_experts": 256},
                "vision_config": {"num_heads": 12, "num_attention_heads": 99},
            }
        )  # fmt: skip
        assert config.model_types == ["qwen3_5_moe", "qwen3_5_moe_text"]
        assert (config.num_attention_heads, config.num_experts, config.moe) == (16, 256, True)
        assert config.vision_heads == 12
        assert config.dtype == "bfloat16"

    def test_wrong_types_are_problems_not_errors(self) -> None:
        config = read_config(
            '{"architectures": "X", "model_type": 7, "num_hidden_layers": "48", "hidden_size": true, "layer_types": "full",'
            ' "quantization_config": [1]}'
        )
        assert config.architectures == ["X"]
        assert config.num_hidden_layers is None
        text = "\n".join(config.problems)
        for name in (
            "architectures",
            "model_type",
            "num_hidden_layers",
            "hidden_size",
            "layer_types",
            "quantization_config",
        ):
            assert name in text
        assert all("\n" not in p for p in config.problems)

    @pytest.mark.parametrize(
        "text",
        [
            "Qwen3NextConfig {\n  'model_type': 'qwen3_next',\n  'num_hidden_layers': 48,\n}",
            '"model_type": "qwen3_next",\n"num_hidden_layers": 48',
            '\ufeff{"model_type": "qwen3_next", "num_hidden_layers": 48,}',
        ],
    )
    def test_broken_json_is_read_as_far_as_it_goes(self, text: str) -> None:
        config = read_config(text)
        assert config.model_types == ["qwen3_next"]
        assert config.num_hidden_layers == 48
        assert config.fatal == ""

    @pytest.mark.parametrize(
        ("text", "layers"),
        [
            ('{"num_hidden_layers": 48, "architectures": ["Qwen3', 48),
            ('{"num_hidden_layers": 48, "architectures": ["Qwen3"', 48),
            ('{"num_hidden_layers": 4', None),
            ('{"text_config": {"num_hidden_layers": 48, "head_dim": 25', 48),
            ('{"text_config": {"num_hidden_layers": 48}', 48),
        ],
    )
    def test_the_last_value_of_a_cut_off_file_is_left_out(self, text: str, layers: int | None) -> None:
        """It may be half a name or half a number."""
        config = read_config(text)
        assert config.num_hidden_layers == layers
        assert config.architectures == []
        assert config.head_dim is None
        assert any("JSON" in p for p in config.problems)

    @pytest.mark.parametrize("text", ["", "hello", "[1, 2]", "null", "<html>"])
    def test_no_config_at_all(self, text: str) -> None:
        assert read_config(text).fatal

    def test_absent_means_absent_only_in_a_whole_file(self) -> None:
        part = {"architectures": ["LlamaForCausalLM"]}
        whole = {**part, "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9}
        assert (read_config(part).moe, read_config(whole).moe) == (None, False)


FIELDS = """
text_config architectures model_type layer_types layers_block_type attn_type_list num_hidden_layers hybrid_override_pattern
linear_attn_config kda_layers full_attention_interval quantization_config quant_method config_groups weights dtype ignore
weight_block_size vision_config num_heads num_experts mamba_step sparse_attention_config quantization attn_layer_period
layer_group_size auto_map thinker_config
"""
KEYS = st.sampled_from(FIELDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, JSON, max_size=8))
def test_never_raises_on_wrong_types(document: dict[str, Any]) -> None:
    read_config(document)
    text = json.dumps(document)
    read_config(text)
    read_config(text[: len(text) // 2])


@given(st.text())
def test_never_raises_on_text(text: str) -> None:
    read_config(text)
    key_spans(text)


def test_depth_and_size() -> None:
    read_config('{"a":' * 100_000)
    read_config("[" * 100_000)
    key_spans('{"a":' * 50_000)


def test_spans_are_by_path() -> None:
    text = '{"vision_config": {"num_heads": 1}, "text_config": {"num_heads": 24, "l": ["a", {"num_heads": 3}]}}'
    spans = key_spans(text)
    begin, end = spans["text_config.num_heads"]
    assert text[begin:end] == '"num_heads": 24'
    begin, end = spans["text_config.l"]
    assert text[begin:end] == '"l": ["a", {"num_heads": 3}]'
    begin, end = spans["vision_config"]
    assert text[begin:end] == '"vision_config": {"num_heads": 1}'
