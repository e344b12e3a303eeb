"""The vectorised operator against the definition, in float32."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hybridctl.kernels.linear_attention import naive, vectorised  # noqa: E402

H, G, D, F, V = 4, 2, 16, 8, 12


def inputs(tokens: int, seed: int = 0, value_size: int = V):
    make = torch.Generator().manual_seed(seed)
    shapes = ((tokens, H, D), (tokens, G, D), (tokens, G, value_size), (G, F, D))
    q, k, v, w = (torch.randn(shape, generator=make) for shape in shapes)
    return q, k, v, w


def close(a, b) -> None:
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("projected", [False, True])
def test_runs_of_any_length_continue_from_their_states(projected: bool) -> None:
    lengths, before = [1, 2, 63, 64, 65, 200], [0, 40, 0, 7, 300, 1]
    total = sum(lengths)
    q, k, v, w = inputs(total)
    w = w if projected else None
    size = F if projected else D
    state, norm = torch.full((9, G, size, V), float("nan")), torch.full((9, G, size), float("nan"))
    slots = torch.tensor([3, 1, 4, 8, 5, 7])
    runs, expected, at = [], [], 0
    for i, (n, past) in enumerate(zip(lengths, before, strict=True)):
        _, old_k, old_v, _ = inputs(past, seed=i + 1)
        state[slots[i]], norm[slots[i]] = vectorised.absorb(old_k, old_v, w)
        new = slice(at, at + n)
        keys, values = torch.cat([old_k, k[new]]), torch.cat([old_v, v[new]])
        expected.append(
            (naive.linear(q[new], keys, values, w), naive.absorb(naive.LinearState.zeros(G, size, V), keys, values, w))
        )
        runs.append((i, at, at + n))
        at += n
    chunks = vectorised.cut(runs)
    out = vectorised.prefill(q, k, v, state, norm, slots, chunks, w)
    whole = torch.empty(total, H, V)
    whole[chunks.tokens] = out
    for (_, q0, q1), (answers, after), slot in zip(runs, expected, slots, strict=True):
        close(whole[q0:q1], answers)
        close(state[slot], after.s)
        close(norm[slot], after.z)
    assert torch.isnan(state[[0, 2, 6]]).all()


@pytest.mark.parametrize("projected", [False, True])
def test_one_token_each(projected: bool) -> None:
    q, k, v, w = inputs(5)
    w = w if projected else None
    size = F if projected else D
    state, norm = torch.full((7, G, size, V), float("nan")), torch.full((7, G, size), float("nan"))
    slots = torch.tensor([6, 0, 2, 5, 1])
    expected = []
    for i, slot in enumerate(slots):
        _, old_k, old_v, _ = inputs(30 + i, seed=i + 1)
        before = naive.absorb(naive.LinearState.zeros(G, size, V), old_k, old_v, w)
        state[slot], norm[slot] = before.s, before.z
        expected.append(naive.decode(before, q[i : i + 1], k[i : i + 1], v[i : i + 1], w))
    out = vectorised.decode(q, k, v, state, norm, slots, w)
    for i, (answer, after) in enumerate(expected):
        close(out[i : i + 1], answer)
        close(state[slots[i]], after.s)
        close(norm[slots[i]], after.z)
    assert torch.isnan(state[[3, 4]]).all()


def test_underflow_gives_zero_not_nan() -> None:
    q, k, v, _ = inputs(3)
    state, norm = torch.zeros(1, G, D, V), torch.zeros(1, G, D)
    out = vectorised.prefill(q - 300, k, v, state, norm, torch.tensor([0]), vectorised.cut([(0, 0, 3)]), None)
    assert torch.equal(out, torch.zeros_like(out))


def test_pieces_are_no_longer_than_needed() -> None:
    assert vectorised.cut([(0, 0, 3), (1, 3, 5)]).index.shape == (2, 4)
    assert vectorised.cut([(0, 0, 300)]).index.shape == (3, 128)
    chunks = vectorised.cut([(4, 10, 140), (2, 140, 141)])
    assert chunks.tokens.tolist() == list(range(10, 141))
    assert (chunks.spans, chunks.rows.tolist()) == ([(0, 2), (2, 3)], [4, 2])
