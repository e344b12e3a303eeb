"""What stops a start, one line each, and what a started engine proves about itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_harness import engine, prompts_of

from hybridctl.errors import HybridctlError

pytestmark = [pytest.mark.vllm, pytest.mark.core]
Make = Callable[..., Path]
T = 64
ROUTED = {"thresholds": {"flash": T, "linear": T}}


def configure(model: Path, **settings: Any) -> Any:
    """Everything that vLLM does before it builds an engine."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    args = {"model": str(model), "max_model_len": 256, "dtype": "float32", "enforce_eager": True, **settings}
    return EngineArgs(**args).create_engine_config()


def test_a_plain_start_is_configured_as_a_hybrid(tiny: Make) -> None:
    config = configure(tiny("qwen3", ROUTED))
    assert config.model_config.is_hybrid
    assert config.model_config.architecture == "HybridCtlQwen3ForCausalLM"


@pytest.mark.parametrize(
    ("hybrid_config", "line"),
    [
        ({**ROUTED, "route_by": "prompt_length"}, "route_by prompt_length with chunked prefill"),
        ({**ROUTED, "route_by": "prompt_length"}, "route_by prompt_length with prefix caching"),
        ({**ROUTED, "batch_policy": "uniform"}, "batch_policy uniform with chunked prefill"),
        ({"thresholds": {"flash": 256, "linear": 256}}, "no token is ever linear: the first linear position is 256"),
        ({**ROUTED, "linear_head_ratio": 0.0}, "no token is ever linear: nothing can go linear"),
        ({"thresholds": {"flash": 64, "linear": 32}}, "hybrid_config.thresholds.linear"),
        (None, "config.json has no hybrid_config"),
    ],
)
def test_routing_that_is_not_served(tiny: Make, hybrid_config: dict[str, Any] | None, line: str) -> None:
    model = tiny("qwen3", hybrid_config, layers=1)
    with pytest.raises(HybridctlError) as caught:
        configure(model)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"kv_cache_dtype": "fp8"}, "--kv-cache-dtype fp8"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}},
            "speculative",
        ),
        ({"pipeline_parallel_size": 2, "distributed_executor_backend": "mp"}, "pipeline parallelism (2 stages)"),
        ({"kv_transfer_config": {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}}, "K/V connectors"),
        ({"enable_lora": True}, "LoRA adapters with KV groups of two kinds"),
        ({"load_format": "sharded_state"}, "--load-format sharded_state with KV groups of two kinds"),
    ],
)
def test_engine_settings_that_are_not_served(tiny: Make, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(HybridctlError) as caught:
        configure(tiny("qwen3", {**ROUTED, "linear_head_ratio": 0.5}, layers=1), **settings)
    assert line in str(caught.value)


def test_layers_that_cannot_be_wrapped() -> None:
    from types import SimpleNamespace

    from vllm.model_executor.layers.attention import Attention

    from hybridctl.runtime.vllm_plugin.layers import unwrappable

    plain: dict[str, Any] = {
        "sliding_window": None, "has_sink": False, "attn_type": "decoder", "kv_sharing_target_layer_name": None,
        "head_size": 64, "head_size_v": 64, "kv_cache_dtype": "auto",
    }  # fmt: skip

    def layer(impl: dict[str, Any] | None = None, **changed: Any) -> Any:
        made = Attention.__new__(Attention)
        made.__dict__.update({**plain, **changed, "impl": SimpleNamespace(**(impl or {}))})
        return made

    assert unwrappable(layer()) == ""
    assert unwrappable(layer(sliding_window=128)) == "sliding window"
    assert unwrappable(layer(has_sink=True)) == "attention sinks"
    assert unwrappable(layer({"alibi_slopes": [1.0]})) == "ALiBi"
    assert unwrappable(layer({"logits_soft_cap": 30.0})) == "soft cap"
    assert unwrappable(layer({"logits_soft_cap": 0, "sinks": None})) == ""
    assert unwrappable(layer(kv_sharing_target_layer_name="x")) == "K/V shared with another layer"
    assert unwrappable(layer(kv_cache_dtype="fp8", head_size_v=32)).count(",") == 1
    assert "SimpleNamespace, not plain Attention" in unwrappable(SimpleNamespace())


def test_without_the_switch_the_architecture_does_not_exist(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.models import ModelRegistry

    from hybridctl.runtime.vllm_plugin import plugin

    for name in [n for n in ModelRegistry.models if n.startswith(plugin.PREFIX)]:
        monkeypatch.delitem(ModelRegistry.models, name)
    monkeypatch.setenv(plugin.SWITCH, "0")
    plugin.register()
    with pytest.raises(ValueError, match="HybridCtlQwen3ForCausalLM"):
        configure(tiny("qwen3", ROUTED))
    monkeypatch.setenv(plugin.SWITCH, "1")
    plugin.register()
    plugin.register()
    assert plugin.PREFIX + "LlamaForCausalLM" in ModelRegistry.models
    assert not any(n.startswith(plugin.PREFIX * 2) for n in ModelRegistry.models)


@pytest.mark.slow
def test_a_started_engine_proves_its_routing_and_holds_no_late_page(tiny: Make, plugin_on: Path) -> None:
    from hybridctl.runtime.vllm_plugin import plugin
    from hybridctl.runtime.vllm_plugin.counters import COUNTERS
    from hybridctl.runtime.vllm_plugin.kv_spec import RoutedKVManager

    plugin.register()
    before = dict(COUNTERS.counts)
    with engine(tiny("qwen3", ROUTED), max_num_batched_tokens=128) as vllm:
        kinds = [(type(g.kv_cache_spec).__name__, len(g.layer_names)) for g in vllm.groups]
        assert sorted(kinds) == [("RoutedKVSpec", 3), ("StateSpec", 3)]
        manager = next(m for m in vllm.managers() if type(m) is RoutedKVManager)
        seen: list[tuple[int, int]] = []
        original = manager.allocate_new_blocks

        def watched(request: str, tokens: int, main: int) -> Any:
            new = original(request, tokens, main)
            seen.append((tokens, sum(not b.is_null for b in manager.req_to_blocks[request])))
            return new

        manager.allocate_new_blocks = watched
        vllm.generate(prompts_of((300, 40)), 40)
    assert max(pages for _, pages in seen) == 1  # 64 tokens, whatever the length
    assert all(pages == 0 for tokens, pages in seen if tokens > 128)
    added = {kernel: COUNTERS.counts[kernel] - before[kernel] for kernel in before}
    # 300 + 39 and 40 + 39 tokens are computed, in 3 layers.
    assert added == {"flash": 3 * 128, "linear": 3 * (339 - 64 + 79 - 64), "absorb": 3 * 128}
    proofs = sorted(plugin_on.glob("*.json"))
    assert [p.name.split("-")[0] for p in proofs] == ["layers", "registered"]
    proof = json.loads(proofs[0].read_text(encoding="utf-8"))
    assert (proof["schema_version"], proof["role"], proof["rank"], proof["tp_size"]) == (1, "worker", 0, 1)
    assert len(proof["layers"]) == 3
    assert {layer["backend"].rpartition(".")[2] for layer in proof["layers"].values()} == {"RoutedCPUBackend"}
    assert proof["untouched"] == []
    assert any("64– linear" in line for line in proof["banner"])
