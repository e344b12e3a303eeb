"""Weights by the name of the model, and one request of the maximum length, against the memory of the GPUs."""

from __future__ import annotations

import pytest

from .making import loud, run

SERVE = {"command.form": "serve", "engine": "vllm", "gpu.memory_gib": 24.0}
# Qwen2.5-7B: 28 layers, 4 KV heads of 128: 56 KiB a token.
QWEN25 = {
    "config.num_hidden_layers": 28,
    "config.num_key_value_heads": 4,
    "config.num_attention_heads": 28,
    "config.hidden_size": 3584,
    "config.max_position_embeddings": 131072,
    "model.hybrid": False,
}


@pytest.mark.parametrize(
    ("name", "quant", "tp"),
    [
        ("Qwen/Qwen2.5-32B-Instruct", "none", 2),
        ("meta-llama/Llama-3.3-70B-Instruct", "none", 4),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "fp8", 2),
        ("some/Llama-3.3-70B-Instruct-AWQ", "awq", 1),
        ("mistralai/Mixtral-8x22B-Instruct-v0.1", "none", 4),
    ],
)
def test_a_name_tells_that_the_weights_do_not_fit(name: str, quant: str, tp: int) -> None:
    values = {**SERVE, "model.name": name, "model.quant": [quant], "flag.tensor-parallel-size": tp}
    assert [f.id for f in loud(run("memory-fit", values))] == ["weights-larger-than-gpus"]


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "none"),
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", "awq"),  # 19 GiB
        ("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "gptq"),
        ("google/gemma-3n-E4B-it", "none"),
        ("yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "none"),  # a drafter, 1.5 GB
        ("openai/gpt-oss-20b", "mxfp4"),
    ],
)
def test_a_name_that_may_fit_is_left_alone(name: str, quant: str) -> None:
    values = {**SERVE, "model.name": name, "model.quant": [quant], "flag.tensor-parallel-size": 1}
    assert not loud(run("memory-fit", values))


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-70B-Instruct", "Qwen/Qwen3-32B", "nvidia/Nemotron-30B-BF16"])
def test_publishers_of_16_bits_need_not_say_so(name: str) -> None:
    values = {**SERVE, "model.name": name, "flag.tensor-parallel-size": 1}
    assert [f.id for f in loud(run("memory-fit", values))] == ["weights-larger-than-gpus"]


@pytest.mark.parametrize("name", ["openai/gpt-oss-120b", "Qwen/Qwen3-32B-W4", "google/gemma-3-27b-it-qat", "a/b-120B"])
def test_a_name_that_may_be_narrower_proves_nothing(name: str) -> None:
    assert run("memory-fit", {**SERVE, "model.name": name, "flag.tensor-parallel-size": 1}).state == "unknown"


def test_a_size_without_a_known_quantisation_proves_nothing() -> None:
    values = {**SERVE, "model.name": "/models/Llama-70B", "flag.tensor-parallel-size": 1}
    assert run("memory-fit", values).state == "unknown"


def test_a_request_of_the_whole_context_does_not_fit_beside_the_weights() -> None:
    values = {**SERVE, **QWEN25, "model.name": "Qwen/Qwen2.5-7B-Instruct-1M", "model.quant": ["none"]}
    values["config.max_position_embeddings"] = 1010000
    outcome = run("kv-fit", values)
    assert [f.id for f in loud(outcome)] == ["context-larger-than-cache"]
    assert outcome.findings[0].area == "kv-cache"
    assert outcome.findings[0].evidence[0].value == "1010000"


@pytest.mark.parametrize(
    "change",
    [
        {"flag.max-model-len": "32768"},
        {"flag.max-model-len": "auto"},
        {"flag.tensor-parallel-size": 4},
        {"model.hybrid": True},
        {"config.kv_lora_rank": 512},
        {"config.sliding_window": 4096},
        {"engine": "sglang"},
        {"flag.kv-cache-dtype": "turboquant_k8v4"},
    ],
)
def test_a_request_that_may_fit_is_left_alone(change: dict[str, object]) -> None:
    values = {**SERVE, **QWEN25, "model.name": "Qwen/Qwen2.5-7B-Instruct-1M", "model.quant": ["none"]}
    values["config.max_position_embeddings"] = 1010000
    assert not loud(run("kv-fit", {**values, **change}))


def test_only_full_attention_layers_count() -> None:
    values = {**SERVE, **QWEN25, "config.max_position_embeddings": 1010000, "config.full_attention_interval": 4}
    assert not loud(run("kv-fit", values))
