"""Layer plans: which layers keep what, which have experts, and what a config leaves open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hybridctl.model.config import read_config
from hybridctl.model.parameters import count_parameters
from hybridctl.model.plan import LayerPlan, plan_layers
from hybridctl.model.states import NotDivisible, state_shape

FAMILIES = json.loads((Path(__file__).parent.parent / "data" / "fit" / "families.json").read_text())


def plan(family: str, **changes: Any) -> LayerPlan:
    return plan_layers(read_config({**FAMILIES[family], **changes}))


class TestExperts:
    @pytest.mark.parametrize(
        ("family", "marks"),
        [
            ("qwen3_next", "11111111"),
            ("jamba", "0101010101010101"),
            ("kimi_linear", "01111111"),
            ("qwen3_5_27b", "0" * 64),
            ("gpt_oss", "111111"),
            ("nemotron_h", "000000000"),
        ],
    )
    def test_marks(self, family: str, marks: str) -> None:
        assert "".join(str(int(bool(layer.moe))) for layer in plan(family).layers) == marks

    def test_layers_that_are_dense_by_name(self) -> None:
        marked = plan("qwen3_next", mlp_only_layers=[0, 7]).layers
        assert [layer.moe for layer in marked] == [False, *[True] * 6, False]

    def test_expert_layers_of_a_pattern(self) -> None:
        marked = plan("nemotron_h", hybrid_override_pattern="MEM*E", num_hidden_layers=5).layers
        assert [layer.moe for layer in marked] == [False, True, False, False, True]


class TestSizes:
    def test_latent_attention_is_the_same_on_every_rank(self) -> None:
        attention = plan("kimi_linear").attention["full"]
        assert (attention.numbers_a_token(1), attention.numbers_a_token(8)) == (144, 144)

    def test_fewer_heads_than_ranks_are_repeated(self) -> None:
        attention = plan("qwen4_exp").attention["sparse"]
        assert [attention.heads_on(n) for n in (1, 2, 4, 8)] == [2, 1, 1, 1]

    def test_kv_sharing(self) -> None:
        shared = plan("gemma3", num_kv_shared_layers=5)
        assert shared.count("sliding") + shared.count("full") == 8

    def test_own_sizes_of_full_layers(self) -> None:
        mixed = plan("gemma3", global_head_dim=128, num_global_key_value_heads=1)
        assert mixed.attention["full"].numbers_a_token(1) == 256
        assert mixed.attention["sliding"].numbers_a_token(1) == 256 and mixed.attention["sliding"].window == 512

    def test_groups_that_do_not_divide_are_repeated_for_each_rank(self) -> None:
        shape = state_shape(FAMILIES["falcon_h1"], "mamba2", ["falcon_h1"])
        assert shape is not None
        conv, state = shape.bytes(4, 0, "bfloat16")
        assert conv == (256 + 4 * 2 * 128) // 4 * 3 * 2
        assert state == 8 // 4 * 32 * 128 * 2

    def test_heads_that_do_not_divide(self) -> None:
        shape = state_shape(FAMILIES["qwen3_next"], "gdn", ["qwen3_next"])
        assert shape is not None
        with pytest.raises(NotDivisible, match="do not divide by 3 ranks"):
            shape.bytes(3, 0, "bfloat16")

    def test_only_classes_that_read_the_state_dtype_obey_it(self) -> None:
        for model, expected in (("qwen3_next", ""), ("qwen3_5_text", "float32")):
            text = {**FAMILIES["qwen3_next"], "mamba_ssm_dtype": "float32"}
            shape = state_shape(text, "gdn", [model])
            assert shape and shape.recurrent_dtype == expected


class TestMissing:
    @pytest.mark.parametrize("field", ["linear_num_value_heads", "linear_conv_kernel_dim"])
    def test_a_state_without_a_size(self, field: str) -> None:
        assert plan("qwen3_next", **{field: None}).missing == ("the sizes of a gdn layer",)

    def test_a_window_that_is_not_stated(self) -> None:
        assert plan("gemma3", sliding_window=None).missing == ("sliding_window",)

    def test_nothing_at_all(self) -> None:
        assert plan_layers(read_config("{}")).missing == ("which layers there are",)

    def test_a_window_that_is_not_used_is_none(self) -> None:
        assert plan("qwen3", sliding_window=4096, use_sliding_window=False).kinds == ("full",)
        assert plan("qwen3", sliding_window=4096).missing == ("which layers there are",)


class TestParameters:
    """Against published sizes in 16 bits: 27B 51.7 GiB with head and vision tower, Flash-Next 335.3 GiB, Next 80 billion."""

    @pytest.mark.parametrize(
        ("family", "billions", "tolerance"),
        [("qwen3_next_80b", 80.0, 0.01), ("qwen3_5_27b", 27.3, 0.02), ("qwen4_exp", 180.0, 0.01)],
    )
    def test_whole(self, family: str, billions: float, tolerance: float) -> None:
        config = read_config(FAMILIES[family])
        counted = count_parameters(config, plan_layers(config))
        assert counted and sum(counted.values()) / 1e9 == pytest.approx(billions, rel=tolerance)

    def test_the_table_of_flash_next(self) -> None:
        config = read_config(FAMILIES["qwen4_exp"])
        counted = count_parameters(config, plan_layers(config))
        assert counted and counted["table"] == pytest.approx(320_001_536 * 160, rel=1e-4)
        assert counted["table"] * 2 / 2**30 == pytest.approx(95.4, abs=0.05)


def test_a_local_chunk_is_no_sliding_window() -> None:
    local = plan("gemma3", sliding_window=None, attention_chunk_size=8192).attention["sliding"]
    assert (local.window, local.chunked) == (8192, True)
    assert plan("gemma3").attention["sliding"].chunked is False
