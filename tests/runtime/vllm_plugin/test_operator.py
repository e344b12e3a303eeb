"""The whole operator in vLLM: linear and flash KV groups in one layer, the entropy band, gates, units.

The reference replays the masks that the server itself used, and says where it would have decided otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from recording import Masked, Replay, assert_replays, recorded
from vllm_harness import Answer, Engine, count_preemptions, difference, engine, prompts_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
Make = Callable[..., Any]

T = 64
AT = {"thresholds": {"flash": T, "linear": T}}
BAND = {"thresholds": {"flash": T, "linear": 200}, "entropy_threshold": 0.9}
LENGTHS = (5, 31, T - 1, T, T + 1, 100, 128, 199, 200, 201, 300, 129)
# name: (family, hybrid_config, of the tiny model, other routings that the same answers must fail)
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]] = {
    "half": (
        *("qwen3", {**AT, "linear_head_ratio": 0.5}, {}),
        {"heads reversed": {**AT, "linear_heads": [0]}, "all linear": AT},
    ),
    "three of four": (
        *("llama", {**AT, "linear_head_ratio": 0.75}, {"groups": 4}),
        {"heads reversed": {**AT, "linear_heads": [0, 1, 2]}},
    ),
    "listed by layer, with biases": (
        *("qwen2", {**AT, "linear_heads": [[1], [0, 1], [0]]}, {}),
        {"heads reversed": {**AT, "linear_heads": [[0], [0, 1], [1]]}},
    ),
    "band": (
        *("qwen3", BAND, {}),
        {"linear in the band": {**BAND, "fallback_policy": "linear"}, "score 0.8": {**BAND, "entropy_threshold": 0.8}},
    ),
    "band for ever": ("qwen3", {**BAND, "thresholds": {"flash": T, "linear": None}}, {}, {"ends": BAND}),
    "gate": ("qwen3", {**AT, "linear_head_gate": True}, {}, {"gate off": {**AT, "linear_head_gate": False}}),
    "layer types": (
        "qwen3",
        {**BAND, "layer_types": ["hybrid_attention", "full_attention", "linear_attention"]},
        {},
        {
            "full and linear exchanged": {
                **BAND,
                "layer_types": ["hybrid_attention", "linear_attention", "full_attention"],
            }
        },
    ),
    "everything": (
        *("qwen3", {**BAND, "linear_head_ratio": 0.5, "linear_head_gate": [1], "linear_feature_size": 32}),
        {"groups": 4, "heads": 8},
        {
            "heads reversed": {**BAND, "linear_heads": [0, 2], "linear_head_gate": [1]},
            "gate off": {**BAND, "linear_head_ratio": 0.5},
        },
    ),
}
CORE = ("half", "everything")


def cases() -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.core if name in CORE else ()) for name in CASES]


def stress(vllm: Engine, tokens: int) -> list[Answer]:
    """Chunks, requests that are preempted and aborted, then the same prompts from the cache, and others."""
    seen = count_preemptions(vllm)

    def disturb(step: int) -> None:
        if step == 9:
            vllm.llm.llm_engine.abort_request(["r1", "r10"])
        if step == 20:
            assert vllm.scheduler.reset_prefix_cache(reset_running_requests=True)

    answers = vllm.run(prompts_of(LENGTHS), tokens, disturb)
    assert len(answers) == len(LENGTHS) - 2
    assert len(seen) >= 5
    for seed in (1, 2):
        answers += vllm.generate(prompts_of(LENGTHS, seed), tokens)
    return answers


def both_kernels(done: Replay) -> None:
    """Each layer sends 10 to 90 % of the band to each kernel."""
    shares = [linear / (flash + linear) for flash, linear in zip(*done.band.values(), strict=True) if flash + linear]
    assert shares
    assert all(0.1 <= share <= 0.9 for share in shares), done.band


@pytest.mark.parametrize("name", cases())
def test_chunks_caching_preemption_and_aborts(tiny: Make, reference: Make, name: str) -> None:
    family, config, settings, others = CASES[name]
    model = tiny(family, config, **settings)
    sizes: dict[str, Any] = {"max_num_batched_tokens": 96, "num_gpu_blocks_override": 200}
    with engine(model, enable_prefix_caching=True, **sizes) as vllm, recorded(vllm) as recorder:
        answers = stress(vllm, 60 if name in CORE else 32)
        free = vllm.pool.get_num_free_blocks()
        assert free == vllm.pool.num_gpu_blocks - 1
    done = assert_replays(answers, recorder, reference(model))
    assert done.found.tokens >= (2000 if name in CORE else 800)
    if "entropy_threshold" in config:
        both_kernels(done)
    for other, routing in {"flash only": {}, **others}.items():
        wrong = difference(answers, reference(model, routing))
        assert wrong.mismatches >= 100, (other, wrong)


def test_compiled_in_whole_prompts(tiny: Make, reference: Make) -> None:
    family, config, settings, _ = CASES["everything"]
    model = tiny(family, config, **settings)
    with engine(model, enforce_eager=False) as vllm, recorded(vllm) as recorder:
        answers = vllm.generate(prompts_of(LENGTHS), 24)
    assert_replays(answers, recorder, reference(model))


def test_what_entropy_decides_is_told(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybridctl.runtime.vllm_plugin import backend_cpu
    from hybridctl.runtime.vllm_plugin.counters import COUNTERS

    lines: list[str] = []
    monkeypatch.setattr(backend_cpu.logger, "info", lambda text, *given: lines.append(text % given if given else text))
    before = dict(COUNTERS.counts)
    family, config, settings, _ = CASES["everything"]
    with engine(tiny(family, config, **settings)) as vllm, recorded(vllm) as recorder:
        vllm.generate(prompts_of((150,)), 2)
    told = {line.partition(" (×")[0] for line in lines if line.startswith("[HYBRID] Selected kernel")}
    kinds = ("flash", "flash (entropy fallback)", "linear (low entropy)")
    assert told == {f"[HYBRID] Selected kernel: {kind}" for kind in kinds}
    # 151 tokens in 3 layers; half of the KV groups may be linear, and from position 64 on entropy decides.
    added = {kernel: count - before[kernel] for kernel, count in COUNTERS.counts.items()}
    linear = sum(recorder.band["linear"]) / 4
    assert added == pytest.approx({"flash": 3 * 151 - linear, "linear": linear, "absorb": 3 * 64 / 2})


GROUPS = {
    "1:1": ({"linear_head_ratio": 0.5}, 4, {"RoutedKVSpec": (3, 64), "KeptKVSpec": (3, 64), "StateSpec": (3, 64)}),
    "3:1": ({"linear_head_ratio": 0.75}, 4, {"RoutedKVSpec": (3, 64), "KeptKVSpec": (3, 192), "StateSpec": (3, 64)}),
    "5:3": (
        {"linear_heads": [7, 6, 4, 2, 0]},
        8,
        {"RoutedKVSpec": (3, 64), "KeptKVSpec": (3, 64), "StateSpec": (3, 64)},
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_the_started_engine_and_what_is_freed(tiny: Make, reference: Make, name: str) -> None:
    """Pages of linear groups go past T_l, those of flash groups stay. Groups that don't divide each other are padded."""
    heads, groups, expected = GROUPS[name]
    model = tiny("qwen3", {**AT, **heads}, groups=groups, heads=8)
    live: dict[str, set[int]] = {}
    with engine(model, enable_prefix_caching=True) as vllm, recorded(vllm) as recorder:
        kinds = {type(g.kv_cache_spec).__name__: g for g in vllm.groups}
        found = {n: (len(g.layer_names), g.kv_cache_spec.block_size) for n, g in kinds.items()}
        assert (len(vllm.groups), found) == (3, expected)
        assert len({g.kv_cache_spec.page_size_bytes for g in vllm.groups}) == 1
        linear, kept = kinds["RoutedKVSpec"].kv_cache_spec, kinds["KeptKVSpec"].kv_cache_spec
        assert linear.num_kv_heads + kept.num_kv_heads == groups
        padded = [1 - s.unpadded_page_size_bytes / s.page_size_bytes for s in (linear, kept)]
        assert padded == [0, pytest.approx(0.4 if name == "5:3" else 0)]

        def look(_: int) -> None:
            for request in vllm.scheduler.running:
                if request.num_computed_tokens > request.num_prompt_tokens + 1:
                    for manager, group in zip(vllm.managers(), vllm.groups, strict=True):
                        blocks = manager.req_to_blocks.get(request.request_id, [])
                        counts = live.setdefault(type(group.kv_cache_spec).__name__, set())
                        counts.add(sum(not b.is_null for b in blocks))

        answers = vllm.run(prompts_of((400,)), 20, look)
    assert live["RoutedKVSpec"] == {0}
    assert min(live["KeptKVSpec"]) == -(-400 // expected["KeptKVSpec"][1])
    assert_replays(answers, recorder, reference(model))


def test_pages_kept_on_request(tiny: Make, reference: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDCTL_KEEP_KV", "1")
    _, config, settings, _ = CASES["half"]
    model = tiny("qwen3", config, **settings)
    with engine(model, poison=False) as vllm, recorded(vllm) as recorder:
        assert {type(g.kv_cache_spec).__name__ for g in vllm.groups} == {"FullAttentionSpec", "StateSpec"}
        answers = vllm.generate(prompts_of(LENGTHS), 16)
    assert_replays(answers, recorder, reference(model))


UNITS = [
    {"name": "early", "kernel": "flash_attn", "layout": "contiguous", "condition": f"position < {T}"},
    {"name": "heads", "kernel": "flash", "condition": "layer == 0 and head == 1 or layer == 2 and not head > 0"},
    {"name": "late", "kernel": "linear_attn", "layout": "compressed", "condition": "seqlen >= 200"},
    {"name": "busy", "kernel": "flash", "condition": "entropy > 0.9"},
]


def test_units_over_all_names_with_a_default(tiny: Make, reference: Make) -> None:
    """The same as thresholds and a list of heads, written as units; the reference knows it in the other form only."""
    model = tiny("qwen3", {"compute_units": UNITS, "default_unit": "linear"})
    with engine(model, max_num_batched_tokens=96, enable_prefix_caching=True) as vllm, recorded(vllm) as recorder:
        answers = vllm.generate(prompts_of(LENGTHS), 24) + vllm.generate(prompts_of(LENGTHS), 24)
    same = {**BAND, "linear_heads": [[0], [0, 1], [1]]}
    done = assert_replays(answers, recorder, reference(model, same))
    both_kernels(done)
    other = {**BAND, "linear_heads": [[1], [0, 1], [0]]}
    assert difference(answers, reference(model, other)).mismatches >= 100


def test_units_with_parts_of_their_own_and_entropy_the_other_way(tiny: Make, reference: Make) -> None:
    """Three rules in one layer: by entropy, high is linear; linear from 128 on, with flash in between; never linear."""
    units = [
        {"name": "early", "kernel": "flash", "condition": f"position < {T} or head == 3"},
        {
            "name": "odd",
            "kernel": "linear",
            "condition": "head == 1 and position >= 128 and not position in [150, 151]",
        },
        {"name": "late", "kernel": "linear", "condition": "head != 1 and (position >= 200 or entropy >= 0.9)"},
    ]
    model = tiny("qwen3", {"compute_units": units, "default_unit": "flash"}, groups=4)
    with engine(model, max_num_batched_tokens=96) as vllm, recorded(vllm) as recorder:
        kinds = sorted((type(g.kv_cache_spec).__name__, g.kv_cache_spec.num_heads) for g in vllm.groups)
        assert [k for k in kinds if k[0] != "StateSpec"] == [
            *(("KeptKVSpec", 1), ("RoutedKVSpec", 1), ("RoutedKVSpec", 2)),
        ]
        answers = vllm.generate(prompts_of(LENGTHS), 24)
    known = reference(model, BAND)
    masked = Masked(known, recorder, answers)
    for plan in known.layers:
        plan.watch = True
    for each in answers:
        tokens = [*each.prompt, *each.tokens]
        logits = masked.logits(tokens)[len(each.prompt) - 1 : -1].float().log_softmax(-1)
        got = logits.gather(1, torch.tensor(each.tokens)[:, None])[:, 0]
        assert torch.equal(logits.argmax(-1), torch.tensor(each.tokens))
        assert float((got - torch.tensor(each.logprobs)).abs().max()) <= 1e-4
        at = torch.arange(len(tokens) - 1)
        odd = (at >= 128) & (at != 150) & (at != 151)
        for plan in known.layers:
            used, own = plan.used[:-1], plan.own[:-1]
            assert torch.equal(used[:, 1], odd)
            assert not used[:, 3].any()
            band = (at >= T) & (at < 200)
            assert torch.equal(used[band][:, [0, 2]], ~own[band][:, [0, 2]])
            assert used[at >= 200][:, [0, 2]].all()
    for plan in known.layers:
        plan.watch, plan.own, plan.margins = False, None, None
