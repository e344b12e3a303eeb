"""What vLLM answers with routed layers is what the reference says: the same tokens, log-probabilities within 1e-4."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_harness import TOLERANCE, Answer, Engine, answer, assert_same, difference, engine, prompts_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
Make = Callable[..., Any]

T = 64
ROUTED = {"thresholds": {"flash": T, "linear": T}}
LENGTHS = (5, 31, T - 1, T, T + 1, 100, 128, 200, 300, 129)


def at(threshold: int) -> dict[str, Any]:
    return {"thresholds": {"flash": threshold, "linear": threshold}}


def test_mixed_batch_and_power_of_the_check(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", ROUTED)
    with engine(model, max_num_seqs=24) as vllm:
        answers = vllm.generate([p for seed in (1, 2, 3, 4) for p in prompts_of(LENGTHS, seed)], 52)
    found = assert_same(answers, reference(model))
    assert found.tokens >= 2000
    assert found.distinct >= 200
    for other in ({}, at(T - 16), at(T + 16)):
        assert difference(answers, reference(model, other)).argmax >= 100, other


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(tiny: Make, reference: Make, dtype: str) -> None:
    """Other page layouts, and a state that stays float32: as near to the float32 reference as flash alone comes."""
    distances = []
    for config, model in ((ROUTED, tiny("qwen3", ROUTED)), ({}, tiny("qwen3", None, routed=False))):
        with engine(model, dtype=dtype) as vllm:
            answers = vllm.generate(prompts_of(LENGTHS), 16)
        distances.append(difference(answers, reference(model, config)).worst)
    assert distances[0] <= max(2 * distances[1], 0.05), distances


def test_an_answer_does_not_depend_on_its_neighbours(tiny: Make) -> None:
    rnd = random.Random(3)
    with engine(tiny("qwen3", ROUTED), max_num_batched_tokens=96, max_num_seqs=6, enable_prefix_caching=True) as vllm:
        for length in (40, 63, 64, 90, 200):
            mine = prompts_of((length,), rnd.randrange(10**6))[0]
            alone = vllm.generate([mine], 20)[0]
            for _ in range(2):
                others = prompts_of([rnd.randrange(1, 300) for _ in range(rnd.randrange(1, 9))], rnd.randrange(10**6))
                place = rnd.randrange(len(others) + 1)
                among = vllm.generate([*others[:place], mine, *others[place:]], 20)[place]
                assert among.tokens == alone.tokens
                assert max(abs(a - b) for a, b in zip(among.logprobs, alone.logprobs, strict=True)) <= TOLERANCE


@pytest.mark.parametrize("budget", [17, 48, 160])
def test_chunked_prefill(tiny: Make, reference: Make, budget: int) -> None:
    model = tiny("qwen3", ROUTED)
    with engine(model, max_num_batched_tokens=budget, max_num_seqs=8) as vllm:
        assert_same(vllm.generate(prompts_of(LENGTHS, budget), 12), reference(model))


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_families(tiny: Make, reference: Make, family: str) -> None:
    model = tiny(family, ROUTED)
    with engine(model) as vllm:
        answers = vllm.generate(prompts_of(LENGTHS), 24)
    assert_same(answers, reference(model))
    assert difference(answers, reference(model, {})).argmax > 20


@pytest.mark.parametrize("block", [64, 128, 256])
def test_block_sizes(tiny: Make, reference: Make, block: int) -> None:
    model = tiny("qwen3", at(100))
    with engine(model, block_size=block) as vllm:
        assert vllm.groups[0].kv_cache_spec.block_size == block
        assert_same(vllm.generate(prompts_of((99, 100, 101, 128, 129, 300)), 16), reference(model))


@pytest.mark.parametrize("budget", [2048, 96])
def test_prefix_caching_cold_and_warm(tiny: Make, reference: Make, budget: int) -> None:
    model = tiny("qwen3", at(100))
    head = prompts_of((192,), 7)[0]
    prompts = [*prompts_of((150, 200, 260, 193), 8, head[:130]), *prompts_of((300, 222), 9, head), head[:64], head]
    with engine(model, enable_prefix_caching=True, max_num_batched_tokens=budget) as vllm:
        cold = vllm.generate(prompts, 16)
        warm = vllm.generate(prompts, 16)
        longer = vllm.generate([a.prompt + a.tokens for a in warm[:4]], 16)
        assert vllm.groups[0].kv_cache_spec.block_size == 64
    for answers in (cold, warm, longer):
        assert_same(answers, reference(model))
    # Past T_l only the state counts: the pages of these positions never existed.
    for each in warm:
        if len(each.prompt) > 128:
            assert each.cached >= 128, (len(each.prompt), each.cached)


def test_feature_and_value_sizes_below_the_head_size(tiny: Make, reference: Make) -> None:
    config = {**ROUTED, "linear_feature_size": 64, "linear_value_size": 64}
    model = tiny("qwen3", config, head_size=128, used_values=64)
    with engine(model) as vllm:
        state = next(layer for name, layer in vllm.layers.items() if name.endswith("linear_state"))
        assert [tuple(t.shape[1:]) for t in state.kv_cache] == [(2, 64, 64), (2, 64)]
        answers = vllm.generate(prompts_of(LENGTHS), 24)
    assert_same(answers, reference(model))


def test_projection_in_llama_with_chunks(tiny: Make, reference: Make) -> None:
    model = tiny("llama", {**ROUTED, "linear_feature_size": 32})
    with engine(model, max_num_batched_tokens=48, max_num_seqs=8) as vllm:
        assert_same(vllm.generate(prompts_of(LENGTHS), 12), reference(model))


def test_batches_like_those_of_the_article(tiny: Make, reference: Make) -> None:
    config = {"thresholds": {"flash": 128, "linear": 256}, "fallback_policy": "flash"}
    model = tiny("qwen3", config)
    with engine(model, max_model_len=640) as vllm:
        same = vllm.generate(prompts_of((256,) * 4), 16)
        mixed = vllm.generate(prompts_of((32, 128, 512), 3), 16)
    assert_same(same, reference(model))
    assert_same(mixed, reference(model))


def test_preempted_and_resumed(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", at(256))
    prompts = prompts_of((60, 50, 64, 70, 62, 190), 4)
    # Each grows to 4 blocks of 64 and a state, all six to 30; at the beginning they need 15.
    with engine(model, num_gpu_blocks_override=17, max_num_batched_tokens=256) as vllm:
        counts = count_preemptions(vllm)
        answers = vllm.generate(prompts, 90)
    assert sum(counts) > 0
    assert_same(answers, reference(model))


@pytest.mark.parametrize("caching", [False, True])
def test_preempted_with_aborts(tiny: Make, reference: Make, caching: bool) -> None:
    model = tiny("qwen3", at(128))
    with engine(model, num_gpu_blocks_override=12, max_num_batched_tokens=128, enable_prefix_caching=caching) as vllm:
        counts = count_preemptions(vllm)
        answers = with_aborts(vllm, prompts_of((60, 50, 140, 40, 62, 64, 127), 5), 40, {1, 4})
        assert sum(counts) > 0
        assert len(answers) == 5
        assert vllm.pool.get_num_free_blocks() == vllm.pool.num_gpu_blocks - 1
        answers += vllm.generate(prompts_of((130, 60), 6), 20)
    assert_same(answers, reference(model))


def count_preemptions(vllm: Engine) -> list[int]:
    seen: list[int] = []
    original = vllm.scheduler._preempt_request

    def counting(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return original(*args, **kwargs)

    vllm.scheduler._preempt_request = counting
    return seen


def with_aborts(vllm: Engine, prompts: list[list[int]], tokens: int, stopped: set[int]) -> list[Answer]:
    """Run all requests together; those in ``stopped`` are aborted after some steps."""
    from vllm import SamplingParams

    front = vllm.llm.llm_engine
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=0)
    for i, prompt in enumerate(prompts):
        front.add_request(f"r{i}", {"prompt_token_ids": prompt}, params)
    done, steps = [], 0
    while front.has_unfinished_requests():
        done += [answer(each) for each in front.step() if each.finished]
        steps += 1
        if steps == 8:
            front.abort_request([f"r{i}" for i in stopped])
    return done


def test_everything_linear(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", at(0))
    with engine(model, max_num_batched_tokens=96) as vllm:
        pages = next(m for m in vllm.managers() if type(m).__name__ == "RoutedKVManager")
        given: list[Any] = []
        original = pages.allocate_new_blocks
        pages.allocate_new_blocks = lambda *args: given.append(original(*args)) or given[-1]
        assert_same(vllm.generate(prompts_of(LENGTHS), 12), reference(model))
    assert given
    assert all(block.is_null for new in given for block in new)  # not one page


def test_some_layers_take_part(tiny: Make, reference: Make) -> None:
    kinds = ["hybrid_attention", "full_attention", "hybrid_attention", "full_attention"]
    model = tiny("qwen3", {**ROUTED, "routing_strategy": "layer_types", "layer_types": kinds}, layers=4)
    with engine(model) as vllm:
        assert {type(g.kv_cache_spec).__name__ for g in vllm.groups} == {
            "FullAttentionSpec",
            "RoutedKVSpec",
            "MambaSpec",
        }
        assert_same(vllm.generate(prompts_of(LENGTHS), 24), reference(model))


def test_pages_kept_on_request(tiny: Make, reference: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDCTL_KEEP_KV", "1")
    model = tiny("qwen3", ROUTED)
    with engine(model, poison=False) as vllm:
        assert {type(g.kv_cache_spec).__name__ for g in vllm.groups} == {"FullAttentionSpec", "MambaSpec"}
        assert_same(vllm.generate(prompts_of(LENGTHS), 24), reference(model))


def test_compiled(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", ROUTED)
    with engine(model, enforce_eager=False) as vllm:
        assert_same(vllm.generate(prompts_of(LENGTHS), 24), reference(model))
