"""Checks the compiled kernels on this machine's GPU against the reference in float64. ``python -m`` this module prints JSON.

Inputs are drawn anew each time, outputs and the states that start are NaN before, so that nothing unwritten passes.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from hybridctl.kernels.linear_attention import naive
from hybridctl.kernels.linear_attention.launch import Kernels, Pages, for_sizes

LIMITS = {"bfloat16": 5e-3, "float16": 1e-3}
"""Largest ‖out − reference‖ / ‖reference‖; the states' own is the same."""


@dataclass(frozen=True)
class Form:
    """Sizes to check."""

    name: str
    sizes: tuple[int, int, int, int, int]
    dtype: str = "bfloat16"
    projected: bool = False
    groups: int = 2

    def kernels(self) -> Kernels:
        return for_sizes(*self.sizes, getattr(torch, self.dtype), self.projected)


FORMS = (
    Form("128, 4 heads a group", (128, 128, 128, 4, 16)),
    Form("128, float16", (128, 128, 128, 4, 16), "float16"),
    Form("128 projected to 64", (128, 64, 128, 4, 80), projected=True),
    Form("128 projected to 128, float16", (128, 128, 64, 1, 16), "float16", True),
    Form("64, 1 head a group", (64, 64, 64, 1, 16)),
    Form("64, 8 heads a group, float16", (64, 64, 64, 8, 32), "float16"),
    Form("values of 96, 8 heads a group", (128, 128, 96, 8, 272)),
    Form("256", (256, 256, 256, 4, 16), groups=1),
    Form("256 projected to 64", (256, 64, 256, 2, 16), projected=True, groups=1),
)


@dataclass(frozen=True)
class Result:
    """One comparison."""

    form: str
    kernel: str
    error: float
    limit: float
    rows: list[int] = field(default_factory=list)


@dataclass
class _Case:
    """Random inputs of a batch, on the GPU."""

    form: Form
    lengths: list[int]
    seed: int

    def __post_init__(self) -> None:
        head, feature, value, group, block = self.form.sizes
        self.dtype = getattr(torch, self.form.dtype)
        self.made = torch.Generator("cuda").manual_seed(self.seed)
        groups, tokens = self.form.groups, sum(self.lengths)
        width = groups * ((group + 1) * head + value)
        packed = self.normal(tokens, width).to(self.dtype)  # as vLLM has it: one tensor, cut into views
        q, k, v = packed.split([groups * group * head, groups * head, groups * value], dim=1)
        self.q, self.k = q.unflatten(1, (-1, head)), k.unflatten(1, (groups, head))
        self.v = v.unflatten(1, (groups, value))
        ends = torch.tensor(self.lengths).cumsum(0)
        self.start, self.end = (ends - torch.tensor(self.lengths)).int().cuda(), ends.int().cuda()
        count = len(self.lengths)
        self.slot = torch.randperm(count + 3, generator=torch.Generator().manual_seed(self.seed))[:count].int().cuda()
        chance = random.Random(self.seed)
        self.starts_fresh = [chance.random() < 0.5 for _ in self.lengths]
        self.fresh = torch.tensor(self.starts_fresh, dtype=torch.uint8, device="cuda")
        self.state = self.normal(count + 3, groups, feature, value) * 3
        self.norm = self.normal(count + 3, groups, feature).abs() * 20 + 1
        self.state[self.slot[self.fresh.bool()].long()] = torch.nan
        self.norm[self.slot[self.fresh.bool()].long()] = torch.nan
        self.before = (self.state.clone(), self.norm.clone())
        weight = self.normal(groups, feature, head) / head**0.5
        self.proj = weight.to(self.dtype) if self.form.projected else None
        self.position = [chance.randrange(40) for _ in self.lengths]
        self.block = block

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", generator=self.made)

    def pages(self) -> Pages:
        """Keys and values in pages that are NaN elsewhere."""
        head, _, value, _, block = self.form.sizes
        counts = [-(-(p + n) // block) for p, n in zip(self.position, self.lengths, strict=True)]
        cache = torch.full(
            (sum(counts) + 1, self.form.groups, block, 2 * head), torch.nan, device="cuda", dtype=self.dtype
        )
        table = torch.zeros(len(counts), max(counts) + 1, dtype=torch.int32)
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(self.seed)).int()
        taken = 0
        for row, (first, length, count) in enumerate(zip(self.position, self.lengths, counts, strict=True)):
            table[row, :count] = order[taken : taken + count]
            taken += count
            at = torch.arange(first, first + length)
            places, offsets = table[row][at // block].long().cuda(), (at % block).cuda()
            run = slice(int(self.start[row]), int(self.end[row]))
            cache[places, :, offsets, :head] = self.k[run]
            cache[places, :, offsets, head : head + value] = self.v[run]
        return Pages(cache, table.cuda(), torch.tensor(self.position, dtype=torch.int32, device="cuda"))

    def wanted(self, row: int, with_state: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs and state of a row, in float64."""
        run = slice(int(self.start[row]), int(self.end[row]))
        slot = int(self.slot[row])
        old = not self.starts_fresh[row] and with_state
        proj = None if self.proj is None else self.proj.double()
        q, k, v = (x[run].double() for x in (self.q, self.k, self.v))
        shape = self.before[0].shape[1:]
        state = naive.LinearState(
            self.before[0][slot].double() if old else torch.zeros(shape, dtype=torch.float64, device="cuda"),
            self.before[1][slot].double() if old else torch.zeros(shape[:2], dtype=torch.float64, device="cuda"),
        )
        outputs = []
        for at in range(0, q.shape[0], 512):
            piece = slice(at, at + 512)
            outputs.append(_answers(state, q[piece], k[piece], v[piece], proj))
            state = naive.absorb(state, k[piece], v[piece], proj)
        return torch.cat(outputs), state.s, state.z


def _answers(state: naive.LinearState, q: Tensor, k: Tensor, v: Tensor, proj: Tensor | None) -> Tensor:
    """Outputs of neighbouring tokens whose past is in ``state``; the numbers of naive.linear on top of naive.read_state."""
    group = q.shape[1] // k.shape[1]
    mapped_q, mapped_k = naive.feature_map(q, proj), naive.feature_map(k, proj)
    mapped_k, values = mapped_k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    weights = torch.einsum("nhf,chf->hnc", mapped_q, mapped_k).tril()
    top = torch.einsum("hnc,chv->nhv", weights, values)
    top += torch.einsum("nhf,hfv->nhv", mapped_q, state.s.repeat_interleave(group, 0))
    total = weights.sum(-1).T + torch.einsum("nhf,hf->nh", mapped_q, state.z.repeat_interleave(group, 0))
    return top / total.clamp_min(naive.DENOMINATOR_FLOOR)[..., None]


def error(out: Tensor, reference: Tensor) -> float:
    """‖out − reference‖ / ‖reference‖; NaN where anything is not finite."""
    wide = out.double()
    if not bool(torch.isfinite(wide).all()):
        return float("nan")
    return float((wide - reference).norm() / reference.norm().clamp_min(1e-30))


def run(form: Form, lengths: list[int], paged: bool, seed: int) -> Iterator[Result]:
    """Prefill, then a decode step of every row, and with pages an absorption, of one random batch."""
    kernels, case = form.kernels(), _Case(form, lengths, seed)
    value, limit = form.sizes[2], LIMITS[form.dtype]
    out = torch.full_like(case.q, torch.nan)
    pages = case.pages() if paged else None
    segment = random.Random(seed).choice([64, 128, 512])
    common: dict[str, Any] = {"fresh": case.fresh, "proj": case.proj}
    at = (case.start, case.end, case.slot, case.state, case.norm)
    kernels.prefill(case.q, case.k, case.v, *at, out, pages=pages, segment=segment, **common)
    rows = [r for r, n in enumerate(lengths) if n]

    def worst(pairs: Callable[[int], tuple[Tensor, Tensor]]) -> float:
        errors = [error(*pairs(r)) for r in rows]
        return max(errors) if all(e == e for e in errors) else float("nan")

    wanted = {r: case.wanted(r) for r in rows}
    yield Result(form.name, "prefill", worst(lambda r: (out[_run(case, r)][..., :value], wanted[r][0])), limit, lengths)
    yield Result(form.name, "state", worst(lambda r: (case.state[case.slot[r]], wanted[r][1])), limit, lengths)
    yield Result(form.name, "norm", worst(lambda r: (case.norm[case.slot[r]], wanted[r][2])), limit, lengths)
    padding = out[..., value:]
    yield Result(form.name, "padding", float(padding.abs().max()) if padding.numel() else 0.0, 0.0, lengths)

    first = case.start[rows].contiguous()
    before = (case.state.clone(), case.norm.clone())
    answers = torch.full_like(case.q, torch.nan)
    slots = case.slot[rows].contiguous()
    kernels.decode(case.q, case.k, case.v, first, slots, case.state, case.norm, answers, proj=case.proj)

    def step(row: int) -> tuple[Tensor, Tensor]:
        token = slice(int(case.start[row]), int(case.start[row]) + 1)
        slot = int(case.slot[row])
        state = naive.LinearState(before[0][slot].double(), before[1][slot].double())
        proj = None if case.proj is None else case.proj.double()
        q, k, v = (x[token].double() for x in (case.q, case.k, case.v))
        reference, after = naive.decode(state, q, k, v, proj)
        steps.append(error(case.state[slot], after.s))
        return answers[token][..., :value], reference

    steps: list[float] = []
    yield Result(form.name, "decode", worst(step), limit, lengths)
    yield Result(form.name, "decode state", max(steps), 1e-5, lengths)

    if pages is not None:
        state, norm = torch.full_like(case.state, torch.nan), torch.full_like(case.norm, torch.nan)
        new = torch.ones_like(case.fresh)
        kernels.absorb(
            pages,
            case.start,
            case.end,
            case.slot,
            state,
            norm,
            sum(lengths),
            fresh=new,
            proj=case.proj,
            segment=segment,
        )
        absorbed = {r: case.wanted(r, with_state=False) for r in rows}
        yield Result(form.name, "absorb", worst(lambda r: (state[case.slot[r]], absorbed[r][1])), limit, lengths)


def _run(case: _Case, row: int) -> slice:
    return slice(int(case.start[row]), int(case.end[row]))


def chunked(form: Form, length: int, seed: int) -> float:
    """Largest difference of a sequence in random chunks, the state carried over, from the reference in one pass."""
    kernels, case = form.kernels(), _Case(form, [length], seed)
    wanted = case.wanted(0)[0]
    out = torch.full_like(case.q, torch.nan)
    chance, at = random.Random(seed), 0
    fresh = case.fresh.clone()
    while at < length:
        end = min(length, at + chance.randrange(1, 700))
        first, last = (torch.tensor([x], dtype=torch.int32, device="cuda") for x in (at, end))
        states = (case.slot, case.state, case.norm)
        kernels.prefill(case.q, case.k, case.v, first, last, *states, out, fresh=fresh, proj=case.proj)
        fresh, at = torch.zeros_like(fresh), end
    return error(out[..., : form.sizes[2]], wanted)


def times(form: Form) -> dict[str, float]:
    """Median µs of a prefill of 8192 tokens and of a decode step of 64 rows, in CUDA graphs, with 8 groups."""
    wide = Form(form.name, form.sizes, form.dtype, form.projected, groups=8)
    kernels = wide.kernels()
    one, many = _Case(wide, [8192], 1), _Case(wide, [1] * 64, 1)
    answers = {}
    for name, case in (("prefill 8192", one), ("decode 64", many)):
        out = torch.empty_like(case.q)
        fresh = torch.ones_like(case.fresh)
        if case is one:

            def call(case: _Case = case, out: Tensor = out, fresh: Tensor = fresh) -> None:
                at = (case.start, case.end, case.slot, case.state, case.norm)
                kernels.prefill(case.q, case.k, case.v, *at, out, fresh=fresh, proj=case.proj)
        else:

            def call(case: _Case = case, out: Tensor = out, fresh: Tensor = fresh) -> None:
                at = (case.start, case.slot, case.state, case.norm)
                kernels.decode(case.q, case.k, case.v, *at, out, fresh=fresh, proj=case.proj)

        answers[name] = _median(call)
    return answers


def _median(call: Callable[[], None], repeats: int = 20) -> float:
    torch.cuda.synchronize()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            call()
        seen = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            graph.replay()
            end.record(stream)
            stream.synchronize()
            seen.append(begin.elapsed_time(end) * 1e3)
    return round(float(statistics.median(seen)), 1)


def main() -> None:
    """Prints one JSON document: the GPU, errors by form and kernel, times."""
    chance = random.Random()
    rows: list[dict[str, Any]] = []
    lengths = ([1], [64, 0, 63, 65, 1], [chance.randrange(1, 8192), 0, chance.randrange(1, 700)])
    for form in FORMS:
        for paged in (False, True):
            for several in lengths:
                rows += [asdict(r) | {"paged": paged} for r in run(form, several, paged, chance.randrange(1 << 30))]
    built = FORMS[0].kernels().built
    document = {
        "schema_version": 1,
        "gpu": torch.cuda.get_device_name(),
        "arch": built.arch,
        "compiler": [built.compiler.kind, built.compiler.version],
        "results": rows,
        "chunked": {form.name: chunked(form, 3000, chance.randrange(1 << 30)) for form in FORMS[:3]},
        "microseconds": {form.name: times(form) for form in FORMS[:3]},
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
