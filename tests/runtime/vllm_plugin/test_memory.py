"""What routing saves, by vLLM's own block pool: pages live, at their peak, and requests that run together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_harness import Engine, engine, prompts_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.core]
T = 256
CONTEXT = 2048


@dataclass
class Use:
    """Of a whole run: most blocks in use, most requests at once, blocks a request still holds while it decodes."""

    peak: int = 0
    together: int = 0
    live: float = 0.0


def run(vllm: Engine, requests: int, tokens: int) -> Use:
    from vllm import SamplingParams

    front, used, live = vllm.llm.llm_engine, Use(), []
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    for i, prompt in enumerate(prompts_of((1500,) * requests)):
        front.add_request(f"r{i}", {"prompt_token_ids": prompt}, params)
    while front.has_unfinished_requests():
        front.step()
        running = vllm.scheduler.running
        used.together = max(used.together, len(running))
        used.peak = max(used.peak, vllm.pool.num_gpu_blocks - 1 - vllm.pool.get_num_free_blocks())
        # Freed at the next allocation: two steps after its first token a request holds what it needs.
        for request in running:
            if request.num_computed_tokens > request.num_prompt_tokens + 1:
                blocks = [b for m in vllm.managers() for b in m.req_to_blocks.get(request.request_id, [])]
                live.append(sum(not b.is_null for b in blocks))
    used.live = sum(live) / max(len(live), 1)
    return used


def test_pages_and_concurrency(tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen3", {"thresholds": {"flash": T, "linear": T}}, context=CONTEXT, layers=1)
    settings: dict[str, Any] = {
        "max_model_len": CONTEXT,
        "num_gpu_blocks_override": 61,
        "max_num_batched_tokens": 512,
        "max_num_seqs": 32,
    }
    with engine(model, **settings) as vllm:
        routed = run(vllm, 12, 40)
        spoken = vllm.llm.llm_engine.vllm_config.cache_config.kv_cache_max_concurrency
    monkeypatch.setenv("HYBRIDCTL_KEEP_KV", "1")
    with engine(model, **settings) as vllm:
        kept = run(vllm, 12, 40)
    # A request of 1,500 tokens keeps 24 pages of 64 and a state; routed, 4 pages until position 256, then the state alone.
    assert kept.live >= 25
    assert routed.live == 1
    assert kept.together == 2
    assert routed.together == 12
    assert routed.peak <= 12 + 2 * 4 < kept.peak
    assert spoken == pytest.approx(61 / 5)


def test_hits_beyond_the_threshold_need_the_state_alone(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages below T_l are freed early, so others soon take them: a later request with the same beginning must not want them."""
    from vllm.v1.core.kv_cache_utils import get_group_id

    model = tiny("qwen3", {"thresholds": {"flash": T, "linear": T}}, context=CONTEXT, layers=1)
    prompts = prompts_of((350, 600, 1000, 1500, 1501))

    def rates(vllm: Engine) -> list[float]:
        """Of a first and a second round, between which every page has gone to someone else: by vLLM's own counters."""
        got, before = [], (0.0, 0.0)
        pages = {i for i, g in enumerate(vllm.groups) if type(g.kv_cache_spec).__name__ != "StateSpec"}
        for _ in range(2):
            vllm.generate(prompts, 4)
            counts = {m.name: m.value for m in vllm.llm.get_metrics() if m.name.startswith("vllm:prefix_cache_")}
            now = counts["vllm:prefix_cache_hits"], counts["vllm:prefix_cache_queries"]
            got.append((now[0] - before[0]) / (now[1] - before[1]))
            before = now
            for block in vllm.pool.blocks:
                if block.block_hash is not None and get_group_id(block.block_hash) in pages:
                    vllm.pool._maybe_evict_cached_block(block)
        return got

    settings: dict[str, Any] = {"max_model_len": CONTEXT, "enable_prefix_caching": True, "max_num_batched_tokens": 512}
    with engine(model, **settings) as vllm:
        block = vllm.groups[0].kv_cache_spec.block_size
        cold, warm = rates(vllm)
    whole = sum((len(p) - 1) // block * block for p in prompts) / sum(len(p) for p in prompts)
    assert cold == 0
    assert warm == pytest.approx(whole)  # as much as can be: up to the last whole block of each
    assert whole > 0.9
    monkeypatch.setenv("HYBRIDCTL_KEEP_KV", "1")
    with engine(model, poison=False, **settings) as vllm:
        assert rates(vllm) == [0, 0]
