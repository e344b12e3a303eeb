"""The vectorised entropy band against the definition."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hybridctl.kernels.linear_attention import routing
from hybridctl.runtime.compute_unit import ENTROPY, FLASH, LINEAR
from hybridctl.runtime.partition import Range
from hybridctl.runtime.vllm_plugin.band import band_of

pytestmark = pytest.mark.core
H, G, D = 6, 2, 16
LOW = Range(64, 300, ENTROPY, 0.8)


def test_scores_are_those_of_the_definition_wherever_runs_are_cut() -> None:
    make = torch.Generator().manual_seed(0)
    lengths = (300, 130)
    q = [torch.randn(n, H, D, generator=make) for n in lengths]
    k = [torch.randn(n, G, D, generator=make) for n in lengths]
    pieces = [(0, 64, 126), (0, 127, 128), (0, 128, 300), (1, 63, 64), (1, 100, 130)]
    runs, queries, at = [], [], 0
    for row, p0, p1 in pieces:
        runs.append((row, at, at + p1 - p0, p0, p1))
        queries.append(q[row][p0:p1])
        at += p1 - p0
    band = band_of(runs, [LOW] * len(runs))
    assert torch.equal(band.at, torch.arange(at))
    assert band.lanes == 64
    landmarks = torch.stack([k[row][keys] for row, keys in zip(band.rows.tolist(), band.keys, strict=True)])
    scores = band.scores(torch.cat(queries), landmarks, D**-0.5)
    wanted = torch.cat([routing.entropy_scores(q[row], k[row], range(p0, p1)) for row, p0, p1 in pieces])
    torch.testing.assert_close(scores, wanted, rtol=0, atol=2e-6)
    ends = torch.cat([torch.arange(p0, p1) for _, p0, p1 in pieces])
    assert bool((band.keys[band.tile].max(1).values <= ends).all())  # nothing behind the position itself


def test_each_run_has_its_own_rule_and_no_number_counts_as_low() -> None:
    rules = [LOW, Range(64, None, ENTROPY, 0.8, True), Range(64, None, ENTROPY, 0.8, False, LINEAR)]
    band = band_of([(i, i, i + 1, 100, 101) for i in range(3)], rules)
    for score in (0.5, 0.8, 0.9, float("nan")):
        got = band.linear(torch.full((3, G), score))
        assert got.tolist() == [[rule.decide(score) == LINEAR] * G for rule in rules]
    assert [rule.decide(0.8) for rule in rules] == [LINEAR, FLASH, FLASH]
