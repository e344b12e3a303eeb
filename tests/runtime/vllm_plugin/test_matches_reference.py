"""What vLLM answers with routed layers is what the reference says: the same tokens, log-probabilities within 1e-4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from tiny_models import DEMO, DEMO_CONFIG, held_out
from vllm_harness import Answer, Difference, assert_same, count_preemptions, difference, engine, prompts_of

from hybridctl.runtime import overlay_min

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
Make = Callable[..., Any]

T = 64
ROUTED = {"thresholds": {"flash": T, "linear": T}}
LENGTHS = (5, 31, T - 1, T, T + 1, 100, 128, 200, 300, 129)


def at(threshold: int) -> dict[str, Any]:
    return {"thresholds": {"flash": threshold, "linear": threshold}}


def whole_check(answers: list[Answer], reference: Make, model: Any, others: list[dict[str, Any]]) -> list[Difference]:
    """At least 2,000 tokens as the reference has them, and the same answers fail against any other routing: all that was found."""
    found = assert_same(answers, reference(model))
    assert found.tokens >= 2000
    wrong = [difference(answers, reference(model, other)) for other in others]
    assert min(each.mismatches for each in wrong) >= 100, wrong
    return [found, *wrong]


@pytest.mark.core
def test_mixed_batch_and_power_of_the_check(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", ROUTED)
    with engine(model, max_num_seqs=24) as vllm:
        answers = vllm.generate([p for seed in (1, 2, 3, 4) for p in prompts_of(LENGTHS, seed)], 52)
    found, *wrong = whole_check(answers, reference, model, [{}, at(T - 16), at(T + 16)])
    assert found.distinct >= 200
    assert min(each.argmax for each in wrong) >= 100, wrong  # not only a digit of a log-probability: other tokens


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_families_in_chunks_with_caching_and_preemption(tiny: Make, reference: Make, family: str) -> None:
    model = tiny(family, ROUTED)
    prompts = [p for seed in (1, 2, 3, 4) for p in prompts_of(LENGTHS, seed)]
    settings = {"max_num_batched_tokens": 160, "enable_prefix_caching": True, "num_gpu_blocks_override": 21}
    with engine(model, max_num_seqs=24, **settings) as vllm:
        preempted = count_preemptions(vllm)
        answers = vllm.generate(prompts, 52)
        assert sum(preempted) > 0
        cold, warm = (vllm.generate(prompts_of((300, 129), 5), 16) for _ in range(2))
    assert [each.cached for each in cold] == [0, 0]
    assert [each.cached for each in warm] == [256, 128]
    assert_same([*cold, *warm], reference(model))
    found, *wrong = whole_check(answers, reference, model, [{}, at(T - 16), at(T + 16)])
    assert found.distinct >= 200
    assert min(each.argmax for each in wrong) >= 100, wrong


def test_mistral(tiny: Make, reference: Make) -> None:
    model = tiny("mistral", ROUTED)
    with engine(model) as vllm:
        answers = vllm.generate(prompts_of(LENGTHS), 24)
    assert_same(answers, reference(model))
    assert difference(answers, reference(model, {})).argmax > 20


def test_the_demo_model(reference: Make, tmp_path: Path) -> None:
    """The trained model that comes along, on text that it has not seen, around its T_l of 512."""
    model = overlay_min.make(DEMO, tmp_path / "demo", DEMO_CONFIG)
    lengths = (300, 500, 505, 508, 510, 511, 512, 513, 514, 520, 530, 560, 600, 640, 700, 512)
    prompts = [text[:n] for text, n in zip(held_out(DEMO, len(lengths)), lengths, strict=True)]
    with engine(model, max_model_len=2048, max_num_batched_tokens=512, enable_prefix_caching=True) as vllm:
        answers = vllm.generate(prompts, 128)
    others = [{**DEMO_CONFIG["hybrid_config"], "thresholds": {"flash": n, "linear": n}} for n in (512 - 16, 512 + 16)]
    whole_check(answers, reference, model, [{}, *others])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(tiny: Make, reference: Make, dtype: str) -> None:
    """Other page layouts, and a state that stays float32: as near to the float32 reference as flash alone comes."""
    distances = []
    for config, model in ((ROUTED, tiny("qwen3", ROUTED)), ({}, tiny("qwen3", None, routed=False))):
        with engine(model, dtype=dtype, poison=bool(config)) as vllm:  # vLLM's own kernel may read what nobody wrote
            answers = vllm.generate(prompts_of(LENGTHS), 16)
        distances.append(difference(answers, reference(model, config)).worst)
    assert max(distances) < 0.2, distances
    assert distances[0] <= max(2 * distances[1], 0.05), distances


@pytest.mark.parametrize("budget", [17, 48, 160])
def test_chunked_prefill(tiny: Make, reference: Make, budget: int) -> None:
    model = tiny("qwen3", ROUTED)
    with engine(model, max_num_batched_tokens=budget, max_num_seqs=8) as vllm:
        assert_same(vllm.generate(prompts_of(LENGTHS, budget), 12), reference(model))


@pytest.mark.parametrize("block", [64, 128, 256])
def test_block_sizes(tiny: Make, reference: Make, block: int) -> None:
    model = tiny("qwen3", at(100))
    with engine(model, block_size=block) as vllm:
        assert vllm.groups[0].kv_cache_spec.block_size == block
        assert_same(vllm.generate(prompts_of((99, 100, 101, 128, 129, 300)), 16), reference(model))


@pytest.mark.parametrize("budget", [2048, pytest.param(96, marks=pytest.mark.core)])
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
            "StateSpec",
        }
        assert_same(vllm.generate(prompts_of(LENGTHS), 24), reference(model))


def test_pages_kept_on_request(tiny: Make, reference: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDCTL_KEEP_KV", "1")
    model = tiny("qwen3", ROUTED)
    with engine(model, poison=False) as vllm:
        assert {type(g.kv_cache_spec).__name__ for g in vllm.groups} == {"FullAttentionSpec", "StateSpec"}
        assert_same(vllm.generate(prompts_of(LENGTHS), 24), reference(model))


def test_compiled(tiny: Make, reference: Make) -> None:
    model = tiny("qwen3", ROUTED)
    with engine(model, enforce_eager=False) as vllm:
        assert_same(vllm.generate(prompts_of(LENGTHS), 24), reference(model))


def test_flash_again_after_linear(tiny: Make, reference: Make) -> None:
    """Compute units may return to flash. The state goes on meanwhile, and pages are kept for ever."""
    bounds = {"first": (0, 64), "second": (64, 128), "third": (128, 160), "fourth": (160, None)}
    units = [
        {
            "name": name,
            "kernel": ("flash", "linear")[i % 2],
            "layout": ("pages", "state")[i % 2],
            "condition": f"position >= {start}" + (f" and position < {end}" if end else ""),
        }
        for i, (name, (start, end)) in enumerate(bounds.items())
    ]
    back = [*units[:2], {**units[2], "condition": "position >= 128"}]
    for config, kinds in (
        ({"compute_units": units}, {"RoutedKVSpec", "StateSpec"}),
        ({"compute_units": back}, {"FullAttentionSpec", "StateSpec"}),
    ):
        model = tiny("qwen3", config)
        with engine(model, max_num_batched_tokens=96, enable_prefix_caching=True) as vllm:
            assert {type(g.kv_cache_spec).__name__ for g in vllm.groups} == kinds
            cold, warm = vllm.generate(prompts_of(LENGTHS), 40), vllm.generate(prompts_of(LENGTHS), 40)
        replay = Replay(reference(model, {}), lambda p: 64 <= p < 128 or (p >= 160 and "RoutedKVSpec" in kinds))  # noqa: B023
        assert_same([*cold, *warm], replay)
        assert difference(cold, reference(model, at(64))).mismatches >= 50


class Replay:
    """A reference whose kernels are given by position."""

    def __init__(self, plain: Any, linear: Callable[[int], bool]) -> None:
        self.plain, self.linear = plain, linear

    def logits(self, tokens: list[int]) -> Any:
        mask = torch.tensor([[self.linear(p)] for p in range(len(tokens))]).expand(-1, 2)
        return self.plain.logits(tokens, kernels=[mask] * len(self.plain.layers))
