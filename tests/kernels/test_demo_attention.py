"""The demo model's fast attention computes what the reference computes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hybridctl.kernels.linear_attention import naive  # noqa: E402
from hybridctl.kernels.linear_attention.routing import hybrid_attention  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo_model"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(EXAMPLE))
    sys.modules.pop("fast_attention", None)
    import fast_attention

    return fast_attention


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 100, 149, 150, 400])
def test_same_as_the_reference_around_every_cut(fast, cut: int) -> None:  # type: ignore[no-untyped-def]
    n, heads, groups, size, features = 150, 6, 3, 16, 8
    q, k, v = (torch.randn(2, h, n, size, dtype=torch.float64) * 2 for h in (heads, groups, groups))
    proj = torch.randn(groups, features, size, dtype=torch.float64)
    out = fast.cut_attention(q, k, v, proj, cut, size**-0.5)
    mask = (torch.arange(n) >= cut)[:, None].expand(n, groups)
    for b in range(2):
        rows = [x[b].transpose(0, 1) for x in (q, k, v)]
        want, _ = hybrid_attention(*rows, kernels=mask, linear_proj=proj)
        torch.testing.assert_close(out[b].transpose(0, 1), want, rtol=1e-10, atol=1e-10)
    assert naive.DENOMINATOR_FLOOR == fast.FLOOR
