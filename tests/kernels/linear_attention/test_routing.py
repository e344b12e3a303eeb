"""Which kernel each position and group takes, and the whole operator put together."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from hybridctl.kernels.linear_attention import naive  # noqa: E402
from hybridctl.kernels.linear_attention.routing import (  # noqa: E402
    Routing,
    entropy_scores,
    hybrid_attention,
    landmark_positions,
    linear_groups,
    route,
)

N, HEADS, GROUPS, SIZE = 200, 4, 2, 8


@pytest.fixture
def qkv():  # type: ignore[no-untyped-def]
    return tuple(torch.randn(N, h, SIZE, dtype=torch.float64) * 2 for h in (HEADS, GROUPS, GROUPS))


def test_neighbours_share_landmarks_and_all_lie_in_the_past() -> None:
    assert landmark_positions(63) == list(range(64))
    for p in range(63, 1500):
        marks = landmark_positions(p)
        assert len(marks) == len(set(marks)) == 64 and max(marks) <= p
        assert marks == landmark_positions((p + 1) // 64 * 64 - 1)
    with pytest.raises(ValueError, match="no entropy score"):
        landmark_positions(62)


def test_entropy_equals_loops(qkv) -> None:  # type: ignore[no-untyped-def]
    q, k, _ = qkv
    positions = [63, 64, 126, 127, 150, 199]
    out = entropy_scores(q, k, positions)
    for row, p in enumerate(positions):
        c = 64 * ((p + 1) // 64)
        for g in range(GROUPS):
            scores = []
            for h in (2 * g, 2 * g + 1):
                logits = [float(q[p, h] @ k[i * c // 64, g]) / math.sqrt(SIZE) for i in range(64)]
                total = sum(math.exp(x) for x in logits)
                chance = [math.exp(x) / total for x in logits]
                scores.append(-sum(x * math.log(x) for x in chance) / math.log(64))
            assert out[row, g].item() == pytest.approx(sum(scores) / 2, rel=1e-12)


def test_entropy_ends() -> None:
    k = torch.zeros(64, 1, SIZE, dtype=torch.float64)
    q = torch.ones(64, 1, SIZE, dtype=torch.float64)
    assert entropy_scores(q, k, [63]).item() == pytest.approx(1.0)
    k[10] = 1000.0
    assert entropy_scores(q, k, [63]).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("band", ["entropy_based", "flash", "linear"])
def test_nothing_depends_on_what_follows(qkv, band: str) -> None:  # type: ignore[no-untyped-def]
    q, k, v = qkv
    routing = Routing(64, 160, band=band, entropy_threshold=0.85)
    whole, mask = hybrid_attention(q, k, v, routing=routing)
    for n in (1, 64, 65, 130, 160, 161):
        part, part_mask = hybrid_attention(q[:n], k[:n], v[:n], routing=routing)
        torch.testing.assert_close(part, whole[:n], rtol=1e-12, atol=1e-12)
        assert torch.equal(part_mask, mask[:n])


def test_kernels_around_the_thresholds(qkv) -> None:  # type: ignore[no-untyped-def]
    q, k, _ = qkv
    for band in ("flash", "linear"):
        mask = route(q, k, Routing(64, 128, band=band))
        assert not mask[:64].any() and mask[128:].all()
        assert mask[64:128].all() == (band == "linear") and mask[64:128].any() == (band == "linear")
    median = entropy_scores(q, k, range(64, 128)).median().item()
    mask = route(q, k, Routing(64, 128, entropy_threshold=median))
    assert not mask[:64].any() and mask[128:].all()
    assert torch.equal(mask[64:128], entropy_scores(q, k, range(64, 128)) <= median)
    assert 0 < mask[64:128].sum() < 128
    assert not route(q, k, Routing(64, None, band="flash")).any()
    assert route(q, k, Routing(0, 0)).all()


@pytest.mark.parametrize("n", [63, 64, 65, 127, 128, 129])
def test_lengths_at_a_threshold(qkv, n: int) -> None:  # type: ignore[no-untyped-def]
    q, k, v = (x[:n] for x in qkv)
    out, mask = hybrid_attention(q, k, v, routing=Routing(64, 128, band="flash"))
    assert mask.sum() == GROUPS * max(0, n - 128)
    torch.testing.assert_close(out[:128], naive.flash(q, k, v)[:128])
    torch.testing.assert_close(out[128:], naive.linear(q, k, v)[128:])


def test_groups_by_ratio_are_spread_evenly() -> None:
    assert linear_groups(4, ratio=0.5) == [False, True, False, True]
    assert linear_groups(8, ratio=0.25) == [False, False, False, True] * 2
    assert linear_groups(4, ratio=1.0) == [True] * 4 and not any(linear_groups(4, ratio=0.0))
    assert linear_groups(4, listed=[0, 3]) == [True, False, False, True]
    with pytest.raises(ValueError, match="outside"):
        linear_groups(4, listed=[4])
    with pytest.raises(ValueError, match="not in 0"):
        linear_groups(4, ratio=1.5)


def test_groups_that_may_not_be_linear_take_flash_everywhere(qkv) -> None:  # type: ignore[no-untyped-def]
    q, k, v = qkv
    out, mask = hybrid_attention(q, k, v, routing=Routing(64, 128, band="flash", linear_heads=(1,)))
    assert not mask[:, 0].any() and mask[128:, 1].all()
    torch.testing.assert_close(out[:, :2], naive.flash(q, k, v)[:, :2])
    torch.testing.assert_close(out[128:, 2:], naive.linear(q, k, v)[128:, 2:])


def test_gate_mixes_where_linear_and_only_there(qkv) -> None:  # type: ignore[no-untyped-def]
    q, k, v = qkv
    gate = torch.tensor([-50.0, 0.0, 1.0, 50.0], dtype=torch.float64)
    out, _ = hybrid_attention(q, k, v, routing=Routing(64, 128, band="flash"), linear_head_gate=gate)
    soft, lin = naive.flash(q, k, v), naive.linear(q, k, v)
    torch.testing.assert_close(out[:128], soft[:128])
    torch.testing.assert_close(out[128:, 0], soft[128:, 0])
    torch.testing.assert_close(out[128:, 1], (soft[128:, 1] + lin[128:, 1]) / 2)
    torch.testing.assert_close(out[128:, 3], lin[128:, 3])


def test_a_recorded_mask_is_replayed_exactly(qkv) -> None:  # type: ignore[no-untyped-def]
    q, k, v = qkv
    routing = Routing(64, 128, entropy_threshold=0.85)
    out, mask = hybrid_attention(q, k, v, routing=routing)
    torch.testing.assert_close(hybrid_attention(q, k, v, kernels=mask)[0], out, rtol=0, atol=0)
    random = torch.rand(N, GROUPS) < 0.5
    out, used = hybrid_attention(q, k, v, kernels=random)
    assert torch.equal(used, random)
    taken = random.repeat_interleave(2, dim=1)
    torch.testing.assert_close(out[taken], naive.linear(q, k, v)[taken])
    torch.testing.assert_close(out[~taken], naive.flash(q, k, v)[~taken])
    for wrong in (random[:-1], random.long()):
        with pytest.raises(ValueError, match="mask must be bool"):
            hybrid_attention(q, k, v, kernels=wrong)
    with pytest.raises(ValueError, match="either"):
        hybrid_attention(q, k, v)


def test_projection_and_narrow_values(qkv) -> None:  # type: ignore[no-untyped-def]
    q, k, v = qkv
    proj = torch.randn(GROUPS, 3, SIZE, dtype=torch.float64)
    out, _ = hybrid_attention(q, k, v[..., :5], routing=Routing(64, 128, band="flash"), linear_proj=proj)
    assert out.shape == (N, HEADS, SIZE) and not out[..., 5:].any()
    torch.testing.assert_close(out[128:, :, :5], naive.linear(q, k, v[..., :5], proj)[128:])


def test_config_of_a_checkpoint() -> None:
    article = {
        "routing_strategy": "sequence_length",
        "thresholds": {"flash": 2048, "linear": 4096},
        "fallback_policy": "entropy_based",
        "linear_head_ratio": 0.5,
    }
    assert Routing.from_config(article) == Routing(2048, 4096, "entropy_based", 0.8, 0.5)
    assert Routing.from_config({**article, "thresholds": {"flash": 64, "linear": None}}).linear_from is None


@pytest.mark.parametrize(
    "change",
    [
        {"routing_strategy": "compute_units"},
        {"route_by": "prompt_length"},
        {"batch_policy": "uniform"},
        {"thresholds": {"linear": 5}},
        {"thresholds": {"flash": 512, "linear": 256}},
        {"thresholds": {"flash": 63, "linear": 256}},
        {"fallback_policy": "guess"},
    ],
)
def test_configs_without_an_answer_are_refused(change: dict[str, object]) -> None:
    good: dict[str, object] = {"thresholds": {"flash": 128, "linear": 256}}
    Routing.from_config(good)
    with pytest.raises(ValueError):
        Routing.from_config({**good, **change})
