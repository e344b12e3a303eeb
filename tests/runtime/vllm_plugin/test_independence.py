"""Neighbours, a small pool, aborts and what free memory holds: none of it changes an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm_harness import TOLERANCE, assert_same, count_preemptions, engine, prompts_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
Make = Callable[..., Any]
T = 64


def at(threshold: int) -> dict[str, Any]:
    return {"thresholds": {"flash": threshold, "linear": threshold}}


LENGTH = st.one_of(st.sampled_from((T - 1, T, T + 1, 2 * T)), st.integers(1, 300))


def test_an_answer_does_not_depend_on_its_neighbours(tiny: Make) -> None:
    with engine(tiny("qwen3", at(T)), max_num_batched_tokens=96, max_num_seqs=6, enable_prefix_caching=True) as vllm:

        @settings(max_examples=9, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(LENGTH, st.lists(LENGTH, min_size=1, max_size=8), st.integers(0, 8), st.integers(0, 10**6))
        def check(length: int, others: list[int], place: int, seed: int) -> None:
            mine = prompts_of((length,), seed)[0]
            alone = vllm.generate([mine], 12)[0]
            neighbours = prompts_of(others, seed + 1)
            place %= len(neighbours) + 1
            among = vllm.generate([*neighbours[:place], mine, *neighbours[place:]], 12)[place]
            assert among.tokens == alone.tokens
            assert max(abs(a - b) for a, b in zip(among.logprobs, alone.logprobs, strict=True)) <= TOLERANCE

        check()


@pytest.mark.parametrize("caching", [False, True])
def test_free_slots_full_of_nan_change_nothing(tiny: Make, reference: Make, caching: bool) -> None:
    """In every third step all that nobody holds is overwritten: recycled pages, recycled states, the null block."""
    model = tiny("qwen3", at(T))
    poisoned: list[int] = []
    with engine(model, max_num_seqs=4, max_num_batched_tokens=128, enable_prefix_caching=caching) as vllm:

        def poison(step: int) -> None:
            if step % 3 == 0:
                poisoned.append(vllm.poison_free_blocks())

        answers = vllm.run(prompts_of((63, 10, 64, 200, 65, 130, 30, 90, 128, 62)), 24, poison)
    assert len(poisoned) > 10
    assert min(poisoned) > 1
    assert_same(answers, reference(model))


def test_preempted_and_resumed(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", at(256))
    prompts = prompts_of((60, 50, 64, 70, 62, 190), 4)
    # Each grows to 3 or 4 blocks of 64, later a state, all six to more than 20; at the beginning they need 9.
    with engine(model, num_gpu_blocks_override=14, max_num_batched_tokens=256) as vllm:
        counts = count_preemptions(vllm)
        answers = vllm.generate(prompts, 90)
    assert sum(counts) > 0
    assert_same(answers, reference(model))


@pytest.mark.core
@pytest.mark.parametrize("caching", [False, True])
def test_preempted_with_aborts(tiny: Make, reference: Make, caching: bool) -> None:
    model = tiny("qwen3", at(128))
    with engine(model, num_gpu_blocks_override=9, max_num_batched_tokens=128, enable_prefix_caching=caching) as vllm:
        counts = count_preemptions(vllm)

        def abort(step: int) -> None:
            if step == 8:
                vllm.llm.llm_engine.abort_request(["r1", "r4"])

        answers = vllm.run(prompts_of((60, 50, 140, 40, 62, 64, 127), 5), 40, abort)
        assert sum(counts) > 0
        assert len(answers) == 5
        assert vllm.pool.get_num_free_blocks() == vllm.pool.num_gpu_blocks - 1
        answers += vllm.generate(prompts_of((130, 60), 6), 20)
    assert_same(answers, reference(model))
