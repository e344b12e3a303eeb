"""Which prompts are sent."""

from __future__ import annotations

import pytest

from hybridctl.runtime.checkpoint import demo
from hybridctl.runtime.routing_probe import FIBONACCI, PROMPT, lengths, place


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
