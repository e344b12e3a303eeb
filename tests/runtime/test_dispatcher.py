"""The dispatcher: a plan is its scalar rule token by token, chunks and neighbours change nothing, ranks hold equal shares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from routing_cases import ARTICLE, HEADS, LAYERS, ROUTINGS, SHAPE, dispatcher, ends, lengths, rows_of_a_step, units

from hybridctl.errors import UsageError
from hybridctl.runtime import step_plan
from hybridctl.runtime.dispatcher import FEATURES, HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse
from hybridctl.runtime.step_plan import PlanError, RoutePlan, StepPlan

DISPATCHERS = {name: dispatcher(block) for name, block in ROUTINGS.items()}
named = st.sampled_from(sorted(ROUTINGS))
KERNELS = ("flash", "linear", "entropy")


@pytest.fixture(params=["python", "numpy"])
def cutter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plans are made by one of the two ways, whatever the number of rows."""
    if request.param == "numpy":
        pytest.importorskip("numpy")
    monkeypatch.setattr(step_plan, "NUMPY_FROM", 1 if request.param == "numpy" else 10**9)
    return str(request.param)


def kernels_of_tokens(route: RoutePlan, starts: list[int], seq_lens: list[int]) -> dict[tuple[int, int], str]:
    """(row, position) → kernel; fails if a token is planned twice or its query index is wrong."""
    found: dict[tuple[int, int], str] = {}
    for kernel in KERNELS:
        runs = route.of(kernel)
        assert runs.tokens == sum(q1 - q0 for _, q0, q1, _, _ in runs)
        assert list(runs) == sorted(runs)
        for row, q0, q1, p0, p1 in runs:
            assert q1 - q0 == p1 - p0 > 0
            for q, p in zip(range(q0, q1), range(p0, p1), strict=True):
                assert q == starts[row] + p - (seq_lens[row] - (starts[row + 1] - starts[row]))
                assert (row, p) not in found
                found[row, p] = kernel
    return found


def pairs(made: HybridAttentionDispatcher) -> list[tuple[int, int]]:
    return [(layer, group) for layer in made.layers for group in range(len(made.groups))]


@pytest.mark.usefixtures("cutter")
@settings(max_examples=60, deadline=None)
@given(named, rows_of_a_step)
@example("back to flash", [(40, 1), (92, 1)])
def test_a_plan_is_the_rule_token_by_token(name: str, rows: list[tuple[int, int]]) -> None:
    made = DISPATCHERS[name]
    starts, seq_lens = lengths(rows)
    plan = made.plan_step(starts, seq_lens)
    assert plan.num_tokens == starts[-1]
    whole: set[str] = set()
    for index, route in enumerate(plan.routes):
        layer, group = next((la, g) for la, g in pairs(made) if made.route(la, g) == index)
        planned = kernels_of_tokens(route, starts, seq_lens)
        wanted = {
            (row, p): made.rule(p, layer, made.groups[group]).kernel
            for row, (before, count) in enumerate(rows)
            for p in range(before, before + count)
        }
        assert planned == wanted
        used = {*wanted.values()}
        assert route.whole == (used.pop() if len(used) == 1 else None)
        whole |= {*wanted.values()}
        begin = made.state_start(layer, group)
        late = [(row, p) for row, p in wanted if begin is not None and p >= begin]
        assert [(row, p) for row, _, _, p0, p1 in route.update for p in range(p0, p1)] == late
        assert list(route.first) == [row for row, p in wanted if p == begin]
        assert begin is None or route.absorb_end == begin
    if starts[-1]:
        assert plan.whole == (next(iter(whole)) if len(whole) == 1 else None)
    assert plan.plain == (whole <= {"flash"} and not any(r.update.tokens for r in plan.routes))


@pytest.mark.usefixtures("cutter")
@settings(max_examples=40, deadline=None)
@given(named, st.integers(1, 400), st.sets(ends, max_size=8))
def test_chunks_change_nothing(name: str, length: int, cuts: set[int]) -> None:
    made = DISPATCHERS[name]
    whole = made.plan_step([0, length], [length])
    for index, route in enumerate(whole.routes):
        once = {p: k for (_, p), k in kernels_of_tokens(route, [0, length], [length]).items()}
        chunked: dict[int, str] = {}
        began, updated, before = 0, 0, 0
        for cut in sorted({cut for cut in cuts if 0 < cut < length} | {length}):
            plan = made.plan_step([0, cut - before], [cut]).routes[index]
            chunked |= {p: k for (_, p), k in kernels_of_tokens(plan, [0, cut - before], [cut]).items()}
            began += len(plan.first)
            updated += plan.update.tokens
            before = cut
        assert chunked == once
        assert (began, updated) == (len(route.first), route.update.tokens)


@pytest.mark.usefixtures("cutter")
@settings(max_examples=40, deadline=None)
@given(named, rows_of_a_step.filter(bool), st.data())
def test_neighbours_change_nothing(name: str, rows: list[tuple[int, int]], data: st.DataObject) -> None:
    made = DISPATCHERS[name]
    mine = data.draw(st.integers(0, len(rows) - 1))
    before, count = rows[mine]
    together = made.plan_step(*lengths(rows))
    alone = made.plan_step([0, count], [before + count])
    for a, b in zip(together.routes, alone.routes, strict=True):
        for kernel in KERNELS:
            assert [s[3:] for s in a.of(kernel) if s[0] == mine] == [s[3:] for s in b.of(kernel)]
        assert [s[3:] for s in a.update if s[0] == mine] == [s[3:] for s in b.update]
        assert (mine in list(a.first)) == bool(len(b.first))


def test_select_kernel_of_the_articles_block() -> None:
    made = HybridAttentionDispatcher(parse(ARTICLE, ModelShape(2, 2)), 2, 2)
    assert [made.select_kernel(p, 0, 1) for p in (0, 2047, 4096, 10**9)] == ["flash", "flash", "linear", "linear"]
    assert [made.select_kernel(2048, 0, 1, e) for e in (0.9, 0.8, 0.1, float("nan"))] == ["flash", *["linear"] * 3]
    assert {made.select_kernel(p, 0, 0) for p in (0, 3000, 9999)} == {"flash"}
    with pytest.raises(PlanError, match="decided by entropy"):
        made.select_kernel(4095, 1, 1)
    for bad in ((-1, 0, 0), (0, 2, 0), (0, 0, 2)):
        with pytest.raises(PlanError):
            made.select_kernel(*bad)


@pytest.mark.parametrize(
    ("condition", "at", "high"), [("entropy > 0.5", "linear", "flash"), ("entropy >= 0.5", "flash", "flash")]
)
def test_a_score_at_the_threshold(condition: str, at: str, high: str) -> None:
    made = dispatcher(units(("flash", f"seqlen < 64 or {condition}"), ("linear", "true")))
    assert [made.select_kernel(64, 0, 0, e) for e in (0.49, 0.5, 0.51)] == ["linear", at, high]


@pytest.mark.parametrize(
    ("starts", "lens"), [([0, 5], [4]), ([0, 5, 4], [9, 9]), ([0, 5], [9, 9]), ([0], [1])], ids=str
)
@pytest.mark.usefixtures("cutter")
def test_lengths_that_cannot_be_are_refused(starts: list[int], lens: list[int]) -> None:
    with pytest.raises(PlanError):
        DISPATCHERS["band"].plan_step(starts, lens)


@pytest.mark.usefixtures("cutter")
def test_padding_rows_and_longer_buffers_are_left_out() -> None:
    plan = DISPATCHERS["no band"].plan_step([0, 3, 3, 4, 4, 4, 99], [3, 0, 75, 0, 0])
    assert list(plan.routes[0].flash) == [(0, 0, 3, 0, 3)]
    assert list(plan.routes[0].linear) == [(2, 3, 4, 74, 75)]


def test_empty_steps_are_plain() -> None:
    for starts, lens in (([0], []), ([0] * 40, [0] * 39)):
        plan = DISPATCHERS["always linear"].plan_step(starts, lens)
        assert (plan.num_tokens, plan.whole, plan.plain) == (0, "flash", True)


def test_decode_and_prefill_parts() -> None:
    route = DISPATCHERS["no band"].plan_step([0, 10, 11, 12], [80, 90, 20]).routes[0]
    decode, prefill = route.linear.split()
    assert list(decode) == [(1, 10, 11, 89, 90)]
    assert list(prefill) == [(0, 0, 10, 70, 80)]
    assert [len(part) for part in route.flash.split()] == [1, 0]


def test_tokens_are_counted_over_layers_and_groups() -> None:
    made = DISPATCHERS["band"]
    plan = made.plan_step([0, 200], [200])
    assert made.pairs == (LAYERS * 2, LAYERS * 2)
    counts = {kernel: plan.tokens(kernel, made.pairs) for kernel in KERNELS}
    assert counts == {"flash": 6 * 200 + 6 * 64, "linear": 6 * 70, "entropy": 6 * 66}


def route_of(plan: StepPlan) -> dict[str, list[tuple[int, int]]]:
    return {k: [(s[3], s[4]) for s in plan.routes[0].of(k)] for k in KERNELS if len(plan.routes[0].of(k))}


def test_prompt_length_fixes_the_kernel_of_a_request() -> None:
    made = dispatcher(ROUTINGS["no band"], route_by="prompt_length")
    assert route_of(made.plan_step([0, 69], [69], [69])) == {"flash": [(0, 69)]}
    assert route_of(made.plan_step([0, 1], [300], [69])) == {"flash": [(299, 300)]}
    plan = made.plan_step([0, 20], [20], [70])
    assert route_of(plan) == {"linear": [(0, 20)]}
    assert list(plan.routes[0].first) == [0] and plan.routes[0].absorb_end == 0
    assert made.select_kernel(3, 0, 0, length=70) == "linear"
    assert (made.state_start(0, 0), made.pages_end(0, 0)) == (0, None)
    for lens in (None, [1]):
        with pytest.raises(PlanError, match="prompt length"):
            made.plan_step([0, 1, 2], [4, 4], lens)
    with pytest.raises(PlanError, match="length that routes"):
        made.select_kernel(3, 0, 0)


def test_prompt_length_has_no_score_before_position_63() -> None:
    made = HybridAttentionDispatcher(
        parse({"thresholds": {"flash": 64, "linear": 130}, "route_by": "prompt_length"}, SHAPE), 3, 4
    )
    assert route_of(made.plan_step([0, 100], [100], [100])) == {"flash": [(0, 63)], "entropy": [(63, 100)]}
    assert route_of(made.plan_step([0, 10], [20], [100])) == {"flash": [(10, 20)]}
    assert [made.rule(p, 0, 0, 100).kernel for p in (62, 63)] == ["flash", "entropy"]


def test_uniform_lets_the_longest_row_decide() -> None:
    made = dispatcher(ROUTINGS["no band"], batch_policy="uniform")
    assert route_of(made.plan_step([0, 10, 11], [10, 70])) == {"flash": [(0, 10), (69, 70)]}
    plan = made.plan_step([0, 10, 11], [10, 71])
    assert route_of(plan) == {"linear": [(0, 10), (70, 71)]}
    assert list(plan.routes[0].first) == [0]
    short = made.plan_step([0, 10], [10])
    assert short.routes[0].update.tokens == 10 and not short.plain and short.whole == "flash"
    never = dispatcher(ROUTINGS["never linear"], batch_policy="uniform").plan_step([0, 10], [10])
    assert never.plain and not list(never.routes[0].first)
    assert route_of(made.plan_step([0, 10, 10], [10, 500])) == {
        "flash": [(0, 10)]
    }  # a row without tokens decides nothing


@pytest.mark.parametrize(("ratio", "size", "each"), [(0.5, 1, 4), (0.5, 2, 2), (0.5, 4, 1), (0.75, 2, 3), (1.0, 16, 1)])
def test_ranks_hold_equal_shares(ratio: float, size: int, each: int) -> None:
    shape = ModelShape(2, 8, 64)
    config = parse({"thresholds": {"flash": 8, "linear": 8}, "linear_head_ratio": ratio}, shape)
    seen: list[int] = []
    for rank in range(size):
        made = HybridAttentionDispatcher(config, 2, 8, rank, size)
        linear = made.linear_groups(1)
        assert len(linear) == each
        order = made.permutation(1)
        assert sorted(order) == list(range(len(made.groups))) and order[:each] == linear
        for group, head in enumerate(made.groups):
            assert (made.select_kernel(8, 1, head) == "linear") == (group in linear)
        seen += made.groups
    assert sorted(set(seen)) == list(range(8)) and len(seen) == max(8, size)


@pytest.mark.parametrize(
    ("block", "heads", "rank", "size", "says"),
    [
        ({"linear_head_ratio": 0.5}, 8, 0, 8, r"\[0, 1, 0, 1, 0, 1, 0, 1\] linear"),
        ({"linear_heads": [0, 1]}, 4, 1, 2, r"\[2, 0\] linear"),
        ({}, 6, 0, 4, "6 KV groups on 4"),
        ({}, 4, 2, 2, "rank 2 of 2"),
    ],
)
def test_unequal_shares_are_refused(block: dict[str, Any], heads: int, rank: int, size: int, says: str) -> None:
    config = parse({"thresholds": {"flash": 8, "linear": 8}, **block}, ModelShape(1, heads))
    with pytest.raises(UsageError, match=says):
        HybridAttentionDispatcher(config, 1, heads, rank, size)


def test_unequal_freed_pages_are_refused() -> None:
    block = units(("flash", "head < 2 and seqlen > 90"), ("linear", "seqlen > 9"), default_unit="flash")
    with pytest.raises(UsageError, match="tensor-parallel ranks"):
        HybridAttentionDispatcher(parse(block, SHAPE), LAYERS, HEADS, 0, 2)


def test_pages_and_state_of_a_group() -> None:
    made = DISPATCHERS["band"]
    assert [made.state_start(0, g) for g in range(HEADS)] == [None, 64, None, 64]
    assert [made.pages_end(0, g) for g in range(HEADS)] == [None, 130, None, 130]
    assert DISPATCHERS["always linear"].pages_end(0, 0) == 0
    assert dispatcher(ROUTINGS["no band"], linear_head_gate=[1]).pages_end(1, 0) is None
    with pytest.raises(PlanError, match="takes no part"):
        DISPATCHERS["layer types"].pages_end(1, 0)


@pytest.mark.parametrize(
    ("block", "needs"),
    [
        (ROUTINGS["no band"], []),
        (ROUTINGS["always linear"], []),
        (ROUTINGS["band"], ["band", "heads"]),
        (ROUTINGS["layer types"], ["band", "layers"]),
        (ROUTINGS["back to flash"], ["return"]),
        ({**ROUTINGS["no band"], "linear_head_gate": True}, ["gate"]),
        ({**ROUTINGS["no band"], "route_by": "prompt_length", "batch_policy": "uniform"}, ["prompt_length", "uniform"]),
    ],
)
def test_what_a_runtime_cannot_do_yet_is_named(block: dict[str, Any], needs: list[str]) -> None:
    made = dispatcher(block)
    assert made.needs() == needs
    assert made.unsupported(()) == [f"not yet: {FEATURES[n]}" for n in needs]
    assert made.unsupported(FEATURES) == []


def test_a_context_too_short_for_linear_is_named() -> None:
    assert DISPATCHERS["no band"].unreachable(71) == []
    assert DISPATCHERS["no band"].unreachable(70) == [
        "no token is ever linear: the first linear position is 70, the context ends at 70"
    ]
    assert "nothing can go linear" in DISPATCHERS["never linear"].unreachable(10**6)[0]


def test_banner_says_which_rule_is_on() -> None:
    assert "each token's own position" in DISPATCHERS["band"].banner()[0]
    assert "prompt's length" in dispatcher(ROUTINGS["band"], route_by="prompt_length").banner()[0]
    assert "neighbours" in dispatcher(ROUTINGS["band"], batch_policy="uniform").banner()[0]
    lines = DISPATCHERS["band for ever"].banner()
    assert (
        "0–79 flash, 80– by entropy (> 0.8: flash, else linear): 2 of 3 layers, 2 of 4 KV groups of this rank" in lines
    )
    assert any(line.startswith("warning: ") for line in lines)
