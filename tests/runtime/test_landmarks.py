"""Where the entropy score of a position looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hybridctl.runtime.entropy import FIRST_SCORED, context, landmarks, tiles


@given(st.integers(0, 10**6))
def test_landmarks_lie_before_the_position_and_are_shared_by_a_tile(position: int) -> None:
    points = landmarks(position)
    assert (len(points) == 64) == (position >= FIRST_SCORED) and len(points) in (0, 64)
    assert points == sorted(set(points)) and all(0 <= p <= position for p in points)
    assert position - context(position) < 64
    if (position + 2) % 64:
        assert landmarks(position + 1) == points


def test_landmarks_are_spread_evenly() -> None:
    assert landmarks(63) == list(range(64))
    assert landmarks(191)[:4] == [0, 3, 6, 9]


@given(st.integers(0, 500), st.integers(0, 500))
def test_tiles_cut_where_the_landmarks_change(start: int, length: int) -> None:
    pieces = tiles(start, start + length)
    assert [p for a, b, _ in pieces for p in range(a, b)] == list(range(start, start + length))
    assert all({context(p) for p in range(a, b)} == {seen} for a, b, seen in pieces)
