"""Where the entropy score of a position looks: the planning half, without tensors.

The score of position p is the entropy of softmax over m = 64 landmark keys, divided by log m. The landmarks are spread evenly over
the first c = 64·⌊(p+1)/64⌋ tokens, so 64 neighbouring queries share them, and the score depends on p and the tokens before it only.
"""

from __future__ import annotations

LANDMARKS = 64
TILE = 64
FIRST_SCORED = TILE - 1  # the first position with a full tile of tokens (its own included) to look at


def context(position: int) -> int:
    """Tokens that the score of ``position`` looks at: a multiple of 64; 0 where there is no score."""
    return TILE * ((position + 1) // TILE)


def landmarks(position: int) -> list[int]:
    """The positions of the landmark keys, ascending; empty where there is no score."""
    seen = context(position)
    return [i * seen // LANDMARKS for i in range(LANDMARKS)] if seen else []


def tiles(start: int, end: int) -> list[tuple[int, int, int]]:
    """Cut positions [start, end) where the landmarks change: (start, end, context) of each piece."""
    pieces = []
    while start < end:
        seen = context(start)
        stop = min(end, seen + TILE - 1)
        pieces.append((start, stop, seen))
        start = stop
    return pieces
