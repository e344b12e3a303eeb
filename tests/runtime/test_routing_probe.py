"""Which prompts are sent."""

from __future__ import annotations

import pytest

from hybridctl.runtime.checkpoint import demo
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse
from hybridctl.runtime.routing_probe import FIBONACCI, PROMPT, expect, lengths, place


def test_prompts_stand_below_between_above_and_at_the_cut() -> None:
    dispatcher = demo().dispatcher()
    assert dispatcher is not None
    assert lengths(dispatcher, [256, 512], 2047) == [128, 384, 512, 513, 768]
    assert lengths(dispatcher, [256, 512], 600) == [128, 384, 512, 513]


@pytest.mark.parametrize(
    ("length", "marks", "told"),
    [
        (256, [256, 512], "below"),  # its last token is at position 255
        (257, [256, 512], "between"),
        (512, [256, 512], "between"),
        (513, [256, 512], "above"),
        (512, [512, 512], "below"),
        (513, [512, 512], "above"),
        (513, [0, 0], ""),
    ],
)
def test_where_a_prompt_ends(length: int, marks: list[int], told: str) -> None:
    assert place(length, marks) == told


def test_long_prompts_begin_as_the_short_one() -> None:
    assert FIBONACCI.startswith(PROMPT)
    compile(FIBONACCI, "fibonacci", "exec")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, {"flash": 2 * 64, "linear": 2 * 36}),
        ({"linear_head_ratio": 0.5}, {"flash": 2 * (64 + 18), "linear": 36}),
        (
            {"linear_heads": [[0, 1, 2, 3], []]},
            {"flash": 64, "linear": 36},
        ),  # the second layer is not routed, nor counted
    ],
)
def test_parts_of_layers_count_as_parts(block: dict[str, object], expected: dict[str, int]) -> None:
    config = parse({"thresholds": {"flash": 64, "linear": 64}, **block}, ModelShape(2, 4))
    assert expect(HybridAttentionDispatcher(config, 2, 4), 100) == expected
