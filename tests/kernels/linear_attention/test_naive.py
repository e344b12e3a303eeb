"""The operator against loops over single numbers, in float64."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from hybridctl.kernels.linear_attention import naive  # noqa: E402

SHAPES = [  # n, H, H_k, D, F, D_v
    (9, 4, 2, 6, 6, 6),
    (7, 6, 2, 8, 3, 5),
    (5, 3, 3, 4, 8, 4),
    (1, 4, 1, 4, 2, 3),
]


def inputs(n: int, heads: int, groups: int, size: int, features: int, values: int):  # type: ignore[no-untyped-def]
    q = torch.randn(n, heads, size, dtype=torch.float64) * 2
    k = torch.randn(n, groups, size, dtype=torch.float64) * 2
    v = torch.randn(n, groups, values, dtype=torch.float64)
    proj = None if features == size else torch.randn(groups, features, size, dtype=torch.float64)
    return q, k, v, proj


def phi(x, weight) -> list[float]:  # type: ignore[no-untyped-def]
    x = x.tolist()
    if weight is not None:
        x = [sum(a * b for a, b in zip(row, x, strict=True)) for row in weight.tolist()]
    return [y + 1 if y > 0 else math.exp(y) for y in x]


def by_loops(q, k, v, proj, kind: str):  # type: ignore[no-untyped-def]
    n, heads, size = q.shape
    out = torch.full((n, heads, v.shape[-1]), math.nan, dtype=torch.float64)
    for p in range(n):
        for h in range(heads):
            g = h // (heads // k.shape[1])
            weight = None if proj is None else proj[g]
            terms = []
            for j in range(p + 1):
                if kind == "flash":
                    dot = sum(a * b for a, b in zip(q[p, h].tolist(), k[j, g].tolist(), strict=True))
                    terms.append(math.exp(dot / math.sqrt(size)))
                else:
                    pairs = zip(phi(q[p, h], weight), phi(k[j, g], weight), strict=True)
                    terms.append(sum(a * b for a, b in pairs))
            total = sum(terms) if kind == "flash" else max(sum(terms), 1e-6)
            for d in range(v.shape[-1]):
                out[p, h, d] = sum(t * v[j, g, d].item() for j, t in enumerate(terms)) / total
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_both_kernels_equal_loops(shape: tuple[int, ...]) -> None:
    q, k, v, proj = inputs(*shape)
    torch.testing.assert_close(naive.flash(q, k, v), by_loops(q, k, v, None, "flash"), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(naive.linear(q, k, v, proj), by_loops(q, k, v, proj, "linear"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [naive.flash, naive.linear])
def test_queries_are_the_last_positions(kernel) -> None:  # type: ignore[no-untyped-def]
    q, k, v, _ = inputs(9, 4, 2, 6, 6, 6)
    torch.testing.assert_close(kernel(q[6:], k, v), kernel(q, k, v)[6:])
    with pytest.raises(ValueError, match="9 queries but only 8 keys"):
        kernel(q, k[:8], v[:8])


@pytest.mark.parametrize("shape", SHAPES)
def test_state_token_by_token_equals_parallel(shape: tuple[int, ...]) -> None:
    q, k, v, proj = inputs(*shape)
    state = naive.LinearState.zeros(k.shape[1], shape[4], v.shape[-1], dtype=torch.float64)
    out = torch.full((*q.shape[:2], v.shape[-1]), math.nan, dtype=torch.float64)
    for p in range(q.shape[0]):
        out[p : p + 1], state = naive.decode(state, q[p : p + 1], k[p : p + 1], v[p : p + 1], proj)
    torch.testing.assert_close(out, naive.linear(q, k, v, proj), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cuts", [(1, 2), (3, 8), (8, 8), (0, 5)])
def test_absorbing_in_pieces_equals_at_once(cuts: tuple[int, int]) -> None:
    _, k, v, proj = inputs(9, 4, 2, 6, 3, 5)
    empty = naive.LinearState.zeros(2, 3, 5, dtype=torch.float64)
    whole, state = naive.absorb(empty, k, v, proj), empty
    for a, b in zip((0, *cuts), (*cuts, 9), strict=True):
        state = naive.absorb(state, k[a:b], v[a:b], proj)
    torch.testing.assert_close(state.s, whole.s, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state.z, whole.z, rtol=1e-12, atol=1e-12)
    assert not empty.s.any()


def test_feature_map_is_positive_far_below_rounding() -> None:
    x = torch.tensor([-60.0, -20.0, -1.0, 0.0, 2.0])[:, None, None]
    want = torch.tensor([math.exp(-60), math.exp(-20), math.exp(-1), 1.0, 3.0])[:, None, None]
    torch.testing.assert_close(naive.feature_map(x), want, rtol=1e-6, atol=0)


def test_denominator_has_a_floor() -> None:
    q = torch.full((1, 1, 2), -400.0)
    out = naive.linear(q, q, torch.ones(1, 1, 2))
    assert torch.equal(out, torch.zeros(1, 1, 2))


def test_narrow_values_are_padded_and_wide_ones_refused() -> None:
    padded = naive.pad_values(torch.ones(2, 3, 4), 6)
    assert padded.shape == (2, 3, 6) and padded[..., :4].all() and not padded[..., 4:].any()
    with pytest.raises(ValueError, match="do not fit"):
        naive.pad_values(torch.ones(2, 3, 4), 3)


def test_half_precision_is_rounded_once() -> None:
    q, k, v, _ = (x if x is None else x.to(torch.bfloat16) for x in inputs(9, 4, 2, 6, 6, 6))
    for kernel in (naive.flash, naive.linear):
        exact = kernel(q.double(), k.double(), v.double()).to(torch.bfloat16)
        out = kernel(q, k, v)
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out, exact, rtol=2**-7, atol=1e-3)


def test_heads_must_divide() -> None:
    q, k, v, _ = inputs(3, 4, 2, 6, 6, 6)
    with pytest.raises(ValueError, match="cannot be shared"):
        naive.flash(q[:, :3], k, v)
    with pytest.raises(ValueError, match=r"not \[H_k, F, 6\]"):
        naive.linear(q, k, v, torch.ones(2, 3, 5))
