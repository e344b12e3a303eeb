"""Routing by the prompt's length and by the longest row: chosen as configured, and the same answers with the masks replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from recording import Masked, recorded
from vllm_harness import assert_same, difference, engine, prompts_of

from hybridctl.runtime.step_plan import PlanError
from hybridctl.runtime.vllm_plugin.by_value import PromptLengths
from hybridctl.runtime.vllm_plugin.routing import RefusedError

pytestmark = pytest.mark.vllm
Make = Callable[..., Any]
OWN = ("route_by", "batch_policy")
WHOLE: dict[str, Any] = {"enable_chunked_prefill": False, "max_num_batched_tokens": 512, "max_num_seqs": 4}
LENGTHS = (5, 90, 99, 100, 101, 150, 199, 200, 201, 300)


def plain(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in OWN}


@pytest.mark.core
def test_a_prompt_is_known_by_its_first_page() -> None:
    known = PromptLengths()
    assert known.of([5, 7], [0, 0], [40, 30]) == [40, 30]
    assert known.of([7, 5], [30, 40], [31, 41]) == [30, 40]
    assert known.of([7], [0], [3]) == [3]  # another request has taken the page
    with pytest.raises(PlanError, match="never seen"):
        known.of([9], [10], [11])


@pytest.mark.slow
def test_by_the_length_of_the_prompt(tiny: Make, reference: Make) -> None:
    """One kernel for all tokens of a request; between the thresholds entropy decides each."""
    config = {
        "thresholds": {"flash": 100, "linear": 200},
        "entropy_threshold": 0.9,
        "linear_head_ratio": 0.5,
        "route_by": "prompt_length",
    }
    model = tiny("qwen3", config)
    with engine(model, **WHOLE) as vllm, recorded(vllm) as recorder:
        answers = vllm.generate(prompts_of(LENGTHS), 60)
    masked = Masked(reference(model, plain(config)), recorder, answers)
    assert_same(answers, masked)
    for each in answers:
        mask = masked.mask(each.request, len(each.prompt) + 59)[:, :, 1]
        share = float(mask.float().mean())
        expected = 0 if len(each.prompt) < 100 else 1 if len(each.prompt) >= 200 else share
        assert share == expected, len(each.prompt)
        if 100 <= len(each.prompt) < 200:
            assert not mask[:, :63].any()  # too early for a score
            assert 0.1 < float(mask[:, 63:].float().mean()) < 0.9
        assert not masked.mask(each.request, len(each.prompt) + 59)[:, :, 0].any()  # the flash group
    assert difference(answers, reference(model, plain(config))).mismatches >= 100  # by position


@pytest.mark.slow
def test_the_longest_row_decides_for_the_batch(tiny: Make, reference: Make) -> None:
    """A short request turns linear when its neighbour gets long, and flash again when that one is gone."""
    config = {"thresholds": {"flash": 100, "linear": 100}, "batch_policy": "uniform"}
    model = tiny("qwen3", config)
    kinds: list[int] = []

    def watch(layer: Any, work: Any, mask: Any) -> None:
        if work.plan is not None:
            kinds.append(sum(len(work.plan.of(kernel)) > 0 for kernel in ("flash", "linear", "entropy")))

    with engine(model, **WHOLE) as vllm, recorded(vllm, watch) as recorder:

        def abort(step: int) -> None:
            if step == 30:
                vllm.llm.llm_engine.abort_request(["r0"])

        answers = vllm.run(prompts_of((95, 20, 40, 30)), 50, abort)
        alone = vllm.generate(prompts_of((20,)), 50)
    assert set(kinds) == {1}
    masked = Masked(reference(model, plain(config)), recorder, [*answers, *alone])
    assert_same([*answers, *alone], masked)
    short = next(each for each in answers if len(each.prompt) == 20)
    changes = masked.mask(short.request, 69)[0, :, 0].int().diff().nonzero()[:, 0].tolist()
    assert len(changes) >= 2  # to linear, and back
    assert not masked.mask(alone[0].request, 69).any()
    assert difference(answers, reference(model, plain(config))).mismatches >= 50  # by position


@pytest.mark.slow
def test_a_pool_in_which_a_request_could_be_preempted_is_refused(tiny: Make) -> None:
    model = tiny("qwen3", {"thresholds": {"flash": 100, "linear": 100}, "batch_policy": "uniform"})
    line = "4 requests of 512 tokens need 36 blocks of the cache, and there are 35"
    with pytest.raises(RefusedError, match=line), engine(model, num_gpu_blocks_override=36, **WHOLE):
        pass
    with engine(model, num_gpu_blocks_override=37, **WHOLE) as vllm:
        assert vllm.pool.num_gpu_blocks == 37
