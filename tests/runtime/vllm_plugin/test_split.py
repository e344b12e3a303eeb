"""How the KV groups of a layer become parts."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")

from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse
from hybridctl.runtime.vllm_plugin.routing import state_groups
from hybridctl.runtime.vllm_plugin.split import parts_of

pytestmark = [pytest.mark.vllm, pytest.mark.core]


def parts(config: dict[str, Any], groups: int = 4, layer: int = 0, rank: int = 0, ranks: int = 1) -> list[Any]:
    made = HybridAttentionDispatcher(parse(config, ModelShape(2, groups)), 2, groups, rank, ranks)
    return [(part.groups, part.linear) for part in parts_of(made, layer)]


AT = {"thresholds": {"flash": 64, "linear": 64}}


def test_linear_groups_stand_first() -> None:
    assert parts(AT) == [((0, 1, 2, 3), True)]
    assert parts({**AT, "linear_head_ratio": 0.5}) == [((1, 3), True), ((0, 2), False)]
    assert parts({**AT, "linear_heads": [[0], [1, 2]]}, layer=1) == [((1, 2), True), ((0, 3), False)]


def test_every_rank_has_its_share() -> None:
    for rank in (0, 1):
        assert parts({**AT, "linear_head_ratio": 0.5}, rank=rank, ranks=2) == [((1,), True), ((0,), False)]


def test_groups_with_different_rules_are_parts_of_their_own() -> None:
    units = [
        {"name": "a", "kernel": "flash", "condition": "position < 64 or head == 3"},
        {"name": "b", "kernel": "flash", "condition": "head == 1 and position < 128"},
        {"name": "c", "kernel": "linear", "condition": "position >= 64"},
    ]
    assert parts({"compute_units": units}) == [((0, 2), True), ((1,), True), ((3,), False)]
    made = HybridAttentionDispatcher(parse({"compute_units": units}, ModelShape(2, 4)), 2, 4)
    assert state_groups(made) == 2
