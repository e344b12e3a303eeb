"""The operators of torch on the CPU: against the reference in float64, outputs and new states poisoned with NaN first."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from hybridctl.kernels.linear_attention import naive, on_cpu, ops, routing  # noqa: E402

H, G, D = 4, 2, 16
OPS = torch.ops.hybridctl


class Batch:
    """Rows of these lengths, in a random order of slots, some without a slot, some that start from zeros."""

    def __init__(self, lengths: list[int], *, features: int = D, values: int = D, block: int = 8) -> None:
        self.lengths, self.values, self.block = lengths, values, block
        total, count = sum(lengths), len(lengths)
        self.q, self.k = torch.randn(total, H, D), torch.randn(total, G, D)
        self.v = torch.randn(total, G, values)
        ends = torch.tensor(lengths).cumsum(0)
        self.start, self.end = (ends - torch.tensor(lengths)).int(), ends.int()
        self.slot = torch.randperm(count + 2)[:count].int()
        self.slot[random.randrange(count)] = -1
        self.fresh = torch.randint(2, (count,), dtype=torch.uint8)
        self.state, self.norm = torch.randn(count + 2, G, features, values), torch.rand(count + 2, G, features) * 9
        held = self.slot[(self.fresh == 1) & (self.slot >= 0)].long()
        self.state[held], self.norm[held] = torch.nan, torch.nan
        self.before = self.state.clone(), self.norm.clone()
        self.proj = None if features == D else torch.randn(G, features, D) / D**0.5
        self.out = torch.full((total, H, D), torch.nan)
        self.mask = torch.randint(2, (total, G), dtype=torch.uint8)
        self.position = torch.randint(0, 30, (count,)).int()

    def rows(self) -> list[int]:
        return [r for r, n in enumerate(self.lengths) if n and self.slot[r] >= 0]

    def run(self, row: int) -> slice:
        return slice(int(self.start[row]), int(self.end[row]))

    def old(self, row: int) -> naive.LinearState:
        s, z = (x[int(self.slot[row])].double() for x in self.before)
        return (
            naive.LinearState(torch.zeros_like(s), torch.zeros_like(z)) if self.fresh[row] else naive.LinearState(s, z)
        )

    def wide(self, row: int) -> tuple[torch.Tensor, ...]:
        return tuple(x[self.run(row)].double() for x in (self.q, self.k, self.v))

    def weight(self) -> torch.Tensor | None:
        return None if self.proj is None else self.proj.double()

    def pages(self) -> dict[str, torch.Tensor]:
        counts = [-(-(int(p) + n) // self.block) for p, n in zip(self.position, self.lengths, strict=True)]
        cache = torch.full((sum(counts) + 1, G, self.block, 2 * D), torch.nan)
        table = torch.full((len(counts), max(counts) + 1), sum(counts), dtype=torch.int32)
        free = torch.randperm(sum(counts)).int().tolist()
        for row, count in enumerate(counts):
            table[row, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
            at = torch.arange(self.lengths[row]) + self.position[row]
            held = table[row].long()[at // self.block], slice(None), at % self.block
            cache[(*held, slice(0, D))] = self.k[self.run(row)]
            cache[(*held, slice(D, D + self.values))] = self.v[self.run(row)]
        return {"cache": cache, "block_table": table, "position": self.position}

    def assert_answers(self, row: int, tokens: slice, expected: torch.Tensor) -> None:
        elsewhere = self.mask[tokens].bool().repeat_interleave(H // G, 1)
        got = self.out[tokens]
        assert bool(got[elsewhere].isnan().all())
        near(got[..., : self.values][~elsewhere], expected[~elsewhere])
        assert not got[..., self.values :][~elsewhere].any()


def near(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a.double(), b, rtol=3e-5, atol=3e-5)


FORMS = [{}, {"features": 8}, {"values": 12}]
LENGTHS = [5, 0, 130, 1, 64]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("paged", [False, True])
def test_prefill(form: dict[str, int], paged: bool) -> None:
    b = Batch(LENGTHS, **form)
    given = b.pages() if paged else {}
    k, v = (torch.full_like(x, torch.nan) if paged else x for x in (b.k, b.v))
    at = (b.start, b.end, b.slot, b.state, b.norm, b.out)
    OPS.linear_attention_prefill(b.q, k, v, *at, fresh=b.fresh, mask=b.mask, proj=b.proj, **given)
    for row in b.rows():
        state, answers = b.old(row), []
        for q, key, value in zip(*(x.split(1) for x in b.wide(row)), strict=True):
            answer, state = naive.decode(state, q, key, value, b.weight())
            answers.append(answer)
        b.assert_answers(row, b.run(row), torch.cat(answers))
        near(b.state[int(b.slot[row])], state.s)
        near(b.norm[int(b.slot[row])], state.z)
    idle = b.run(int((b.slot < 0).nonzero()[0, 0]))
    assert bool(b.out[idle].isnan().all())


@pytest.mark.parametrize("form", FORMS)
def test_decode(form: dict[str, int]) -> None:
    b = Batch([3, 1, 9, 2], **form)
    at = (b.start, b.slot, b.state, b.norm, b.out)
    OPS.linear_attention_decode(b.q, b.k, b.v, *at, fresh=b.fresh, mask=b.mask, proj=b.proj)
    for row in b.rows():
        token = slice(int(b.start[row]), int(b.start[row]) + 1)
        expected, state = naive.decode(b.old(row), *(x[:1] for x in b.wide(row)), b.weight())
        b.assert_answers(row, token, expected)
        near(b.state[int(b.slot[row])], state.s)
    assert int((~b.out.isnan()).any(-1).any(-1).sum()) <= len(b.lengths) - 1  # nothing else was written


@pytest.mark.parametrize("form", FORMS)
def test_absorb(form: dict[str, int]) -> None:
    b = Batch(LENGTHS, **form)
    pages = b.pages()
    at = (b.start, b.end, b.slot, b.state, b.norm, sum(LENGTHS))
    OPS.linear_attention_absorb(*pages.values(), *at, fresh=b.fresh, proj=b.proj, group=H // G)
    for row in b.rows():
        _, k, v = b.wide(row)
        state = naive.absorb(b.old(row), k, v, b.weight())
        near(b.state[int(b.slot[row])], state.s)
        near(b.norm[int(b.slot[row])], state.z)


@pytest.mark.parametrize("paged", [False, True])
def test_entropy(paged: bool) -> None:
    """A mask by position outside the band and by the score inside it, whatever the kind of keys."""
    b = Batch([200, 90, 300])
    b.slot[:] = torch.arange(3)
    b.position[:] = 0
    score = torch.full((b.q.shape[0], G), torch.nan)
    given = {**b.pages(), "slot": b.slot} if paged else {}
    mask = torch.full_like(b.mask, 7)
    k = None if paged else b.k
    OPS.linear_attention_entropy(b.q, k, b.start, b.end, mask, 70, 250, 0.9, D**-0.5, score=score, **given)
    for row, length in enumerate(b.lengths):
        first = int(b.start[row])
        inside = list(range(70, min(250, length)))
        q, keys, _ = b.wide(row)
        scores = routing.entropy_scores(q, keys, inside)
        near(score[[first + p for p in inside]], scores)
        assert bool((mask[first : first + 70] == 1).all())
        assert bool((mask[first + 250 : first + length] == 0).all())
        got = mask[[first + p for p in inside]].bool()
        assert bool((got == (scores > 0.9))[(scores - 0.9).abs() > 1e-5].all())
        assert 0 < int(got.sum()) < got.numel()
    with pytest.raises(ValueError, match="no entropy score"):
        on_cpu.entropy(b.q, b.k, b.start, b.end, mask, 10, 90, 0.9, 1.0)


def arguments(name: str) -> tuple[tuple[object, ...], dict[str, object]]:
    b = Batch([70, 3, 66])
    b.slot[:] = torch.arange(3)
    states, named = (b.state, b.norm), {"fresh": b.fresh, "proj": b.proj}
    b.position[:] = 0
    if name == "prefill":
        return (b.q, b.k, b.v, b.start, b.end, b.slot, *states, b.out), {**named, "mask": b.mask}
    if name == "absorb":
        return (*b.pages().values(), b.start, b.end, b.slot, *states, 139), named
    if name == "decode":
        return (b.q, b.k, b.v, b.start, b.slot, *states, b.out), {**named, "mask": b.mask}
    return (b.q, b.k, b.start, b.end, b.mask, 64, 70, 0.8, 0.25), {}


@pytest.mark.parametrize("name", list(ops.SCHEMAS))
def test_torch_may_trace_them(name: str) -> None:
    """Its own check of an operator: what the schema says of writes and aliases holds, and meta tensors go through."""
    positional, named = arguments(name)
    op = getattr(OPS, ops.PREFIX + name).default
    torch.library.opcheck(op, positional, named)
    meta = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in positional]
    assert op(*meta, **{n: x.to("meta") if isinstance(x, torch.Tensor) else x for n, x in named.items()}) is None
