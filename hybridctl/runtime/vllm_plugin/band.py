"""The entropy band on the CPU: which kernel a position takes, from the keys in the pages. Vectorised over tokens and groups.

Sizes: B tokens of the band, N tiles (neighbours that share their landmarks), m = 64 landmarks, H query heads, H_k KV groups,
g = H / H_k, D head size. ``kernels.linear_attention.routing`` defines the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention import vectorised
from hybridctl.runtime.compute_unit import LINEAR
from hybridctl.runtime.entropy import TILE
from hybridctl.runtime.partition import Range


@dataclass
class Band:
    """The tokens of a step that entropy decides, in tiles.

    Attributes:
        at: [B]; places in the flat batch.
        tile, lane: [B]; the tile of each token and its place there; ``lanes`` the longest tile's length.
        rows: [N]; batch row of each tile.
        keys: [N, m]; positions of its landmark keys.
        threshold: [B]; ``inclusive`` [B]: a score at it counts as above; ``above_linear`` [B]: above it is linear, else flash.
    """

    at: Tensor
    tile: Tensor
    lane: Tensor
    lanes: int
    rows: Tensor
    keys: Tensor
    threshold: Tensor
    inclusive: Tensor
    above_linear: Tensor

    def scores(self, query: Tensor, landmarks: Tensor, scale: float) -> Tensor:
        """Entropy scores [B, H_k], float32, 0 … 1.

        Args:
            query: [B, H, D].
            landmarks: [N, m, H_k, D], the keys at ``keys``.
        """
        tiles, groups = landmarks.shape[0], landmarks.shape[2]
        heads, size = query.shape[1:]
        queries = torch.zeros(tiles, self.lanes, heads, size)
        queries[self.tile, self.lane] = query.float()
        queries = queries.view(tiles, self.lanes, groups, heads // groups, size).permute(0, 2, 1, 3, 4)
        dots = (
            torch.matmul(queries.flatten(2, 3), landmarks.float().permute(0, 2, 3, 1)) * scale
        )  # [N, H_k, lanes·g, m]
        mean = vectorised.entropy(dots).view(tiles, groups, self.lanes, heads // groups).mean(-1)
        return mean[self.tile, :, self.lane]

    def linear(self, scores: Tensor) -> Tensor:
        """[B, H_k]: True where linear computes. A score that is not a number counts as low."""
        level = self.threshold[:, None]
        high = torch.where(self.inclusive[:, None], scores >= level, scores > level)
        return high == self.above_linear[:, None]


def band_of(runs: Sequence[tuple[int, int, int, int, int]], rules: Sequence[Range]) -> Band:
    """The band of runs (row, q0, q1, p0, p1), of which rule i decides run i."""
    row, q0, q1, p0, _ = (torch.tensor(column, dtype=torch.long) for column in zip(*runs, strict=True))
    counts = q1 - q0
    run = torch.repeat_interleave(torch.arange(len(counts)), counts)
    inside = torch.arange(len(run)) - (counts.cumsum(0) - counts)[run]
    context = (p0[run] + inside + 1).div(TILE, rounding_mode="floor") * TILE
    new = torch.ones(len(run), dtype=torch.bool)
    new[1:] = (context[1:] != context[:-1]) | (run[1:] != run[:-1])
    tile = new.cumsum(0) - 1
    first = new.nonzero()[:, 0]
    lane = torch.arange(len(run)) - first[tile]
    thresholds = torch.tensor([rule.threshold for rule in rules], dtype=torch.float32)
    return Band(
        at=q0[run] + inside,
        tile=tile,
        lane=lane,
        lanes=int(lane.max()) + 1,
        rows=row[run][first],
        keys=vectorised.landmarks(context[first]),
        threshold=thresholds[run],
        inclusive=torch.tensor([rule.inclusive for rule in rules])[run],
        above_linear=torch.tensor([rule.above == LINEAR for rule in rules])[run],
    )
