"""The full-attention layers of Qwen3-Next, routed beside its Gated DeltaNet layers: states of two kinds in one model.

vLLM computes Gated DeltaNet on the CPU in bfloat16 only, so answers are held against those of the same model without routing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from recording import Masked, recorded
from vllm_harness import Answer, engine, prompts_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
Make = Callable[..., Any]
ROUTED = {"thresholds": {"flash": 64, "linear": 200}, "entropy_threshold": 0.9, "linear_head_ratio": 0.5}
LENGTHS = (5, 63, 64, 65, 100, 200, 300, 700)
BOUND = 2e-2  # of |score − threshold| in bfloat16


def away(answers: Sequence[Answer], reference: Any) -> float:
    """The mean distance of log-probabilities."""
    found = []
    for each in answers:
        logits = reference.logits([*each.prompt, *each.tokens])[len(each.prompt) - 1 : -1]
        right = logits.float().log_softmax(-1).gather(1, torch.tensor(each.tokens)[:, None])[:, 0]
        found.append((right - torch.tensor(each.logprobs)).abs())
    return float(torch.cat(found).mean())


def test_beside_gated_deltanet(tiny: Make, reference: Make) -> None:
    # Named, as vLLM widens the state where the processor has AVX512-BF16, and blocks with it: prompts would be shorter than one.
    settings: dict[str, Any] = {
        "dtype": "bfloat16",
        "mamba_ssm_cache_dtype": "bfloat16",
        "max_model_len": 1024,
        "poison": False,
    }
    plain = tiny("qwen3_next", None, routed=False, layers=4)
    with engine(plain, **settings) as vllm:
        control = away(vllm.generate(prompts_of(LENGTHS), 24), reference(plain, {}))
    model = tiny("qwen3_next", ROUTED, layers=4)
    with (
        engine(model, max_num_batched_tokens=640, enable_prefix_caching=True, **settings) as vllm,
        recorded(vllm) as recorder,
    ):
        kinds = sorted((type(g.kv_cache_spec).__name__, len(g.layer_names)) for g in vllm.groups)
        assert kinds == [("KeptKVSpec", 2), ("MambaSpec", 2), ("RoutedKVSpec", 2), ("StateSpec", 2)]
        answers = vllm.generate(prompts_of(LENGTHS), 24)
        answers += vllm.generate(prompts_of(LENGTHS), 24)
    assert answers[-1].cached > 200
    known = reference(model)
    masked = Masked(known, recorder, answers)
    for plan in known.layers:
        plan.watch = True
    routed = away(answers, masked)
    for plan in known.layers:
        plan.watch = False
    assert masked.margin <= BOUND
    assert min(recorder.band["linear"][1::2]) > 100 < min(recorder.band["flash"][1::2])
    others = {
        "flash only": {},
        "heads reversed": {**ROUTED, "linear_heads": [0]},
        "all linear": {**ROUTED, "linear_heads": [0, 1]},
    }
    wrong = {name: away(answers, reference(model, _listed(other))) for name, other in others.items()}
    assert routed <= 1.5 * control, (control, routed, wrong)
    assert min(wrong.values()) >= 1.5 * routed, (control, routed, wrong)


def _listed(config: dict[str, Any]) -> dict[str, Any]:
    """linear_heads stands in the place of the ratio."""
    return {key: value for key, value in config.items() if key != "linear_head_ratio" or "linear_heads" not in config}
