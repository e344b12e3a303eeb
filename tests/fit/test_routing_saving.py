"""What routing saves, and what the groups cost."""

from __future__ import annotations

from typing import Any

import pytest

from hybridctl.fit.routing import Routing, break_even, routing
from hybridctl.model.config import read_config
from hybridctl.model.plan import plan_layers

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512, "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 2048, "dtype": "bfloat16",
}  # fmt: skip


def made(tp: int = 1, **table: Any) -> Routing | None:
    document = {**QWEN3, "hybrid_config": {"thresholds": {"flash": 2048, "linear": 4096}, **table}}
    config = read_config(document)
    return routing(config, plan_layers(config), tp)


def test_half_of_the_heads() -> None:
    half = made(linear_head_ratio=0.5)
    assert half and (half.linear_heads, half.flash_heads) == (4, 4)
    assert half.live(4096) == half.flash_only(4096)
    assert half.live(65536) == half.state_bytes + half.flash_only(65536) // 2
    assert half.padding == 0


def test_all_heads_keep_a_state_only() -> None:
    every = made(linear_head_ratio=1.0)
    assert every and every.flash_heads == 0
    assert every.state_bytes == 8 * 128 * 129 * 4 * 4  # heads x features x (values + normaliser) x float32 x layers
    assert every.live(100_000) == every.state_bytes
    assert break_even(every) == 4096


@pytest.mark.parametrize(("ratio", "heads", "padding", "factor"), [(0.75, 2, 0.0, 3), (0.625, 3, 0.2, 1)])
def test_an_uneven_split(ratio: float, heads: int, padding: float, factor: int) -> None:
    """3:1 works with blocks three times as long; 5:3 pads 40 % of the smaller group's page, a fifth of both."""
    split = made(linear_head_ratio=ratio)
    assert split and split.flash_heads == heads
    assert split.padding == pytest.approx(padding)
    assert split.block_factor == factor


def test_on_two_ranks_each_has_its_share() -> None:
    half = made(2, linear_head_ratio=0.5)
    assert half and (half.linear_heads, half.flash_heads) == (2, 2)


def test_no_routing_without_a_declaration_or_an_end() -> None:
    config = read_config(QWEN3)
    assert routing(config, plan_layers(config), 1) is None
    assert made(thresholds={"flash": 2048, "linear": None}) is None
