"""Slow answers and slow starts: each reason is found from what is said, and who does not complain is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.checks import _speed as speed
from hybridctl.doctor.diagnose import text_stream
from hybridctl.doctor.facts import parse_env_text
from hybridctl.doctor.logs import read_log

from .making import facts, loud, run

SLOW = {"report.said": "symptom : generation is very slow"}
GB10_70B = {"gpu.names": ["NVIDIA GB10"], "model.name": "nvidia/Llama-3.3-70B-Instruct-NVFP4", "model.quant": ["nvfp4"]}
DECODE = [
    ("decode-bound-by-memory-bandwidth", {**GB10_70B, "report.said": "measured : 4.0-4.2 tok/s"}),
    ("decode-bound-by-memory-bandwidth", {**GB10_70B, **SLOW}),
    ("eager-mode-decodes-slowly", {**SLOW, "flag.enforce-eager": True}),
    ("eager-mode-decodes-slowly", {"log.tokens_per_s": 2.2, "flag.enforce-eager": True}),
    ("decoding-on-cpu", {**SLOW, "torch.build": "cpu"}),
    ("decoding-on-cpu", {"log.tokens_per_s": 0.1, "log.device": "cpu"}),
    ("weights-offloaded-to-ram", {**SLOW, "flag.cpu-offload-gb": 20}),
    ("few-requests-at-once", {"report.said": "TTFT of a second request: full duration", "flag.max-num-seqs": 1}),
    ("slow-quantisation-format", {**SLOW, "engine": "vllm", "model.name": "/models/Q-32B-Q4_K_M.gguf"}),
    ("slow-quantisation-format", {**SLOW, "config.quantization_config.desc_act": True, "flag.tensor-parallel-size": 4}),
    ("tensor-parallel-over-pcie", {**SLOW, "gpu.names": ["NVIDIA GeForce RTX 4090"] * 2, "flag.tensor-parallel-size": 2}),
    ("llamacpp-gated-delta-net-slow", {**SLOW, "engine": "llama.cpp", "model.name": "Qwen3.5-27B-Q8_0.gguf"}),
    ("decode-far-below-bandwidth", {"log.tokens_per_s": 6.9, "gpu.names": ["H100 NVL"], "engine": "vllm", "model.name": "a/Q-8B"}),
    ("thinking-takes-the-time", {"report.said": "symptom : the model thinks an exuberant amount"}),
    ("reported-slow", SLOW),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "values"), DECODE)
def test_the_reason_is_found(wanted: str, values: dict[str, Any]) -> None:
    outcome = run("decode-speed", values)
    assert [(f.id, f.area, f.severity) for f in outcome.findings] == [(wanted, "slow", "warning")]


@pytest.mark.parametrize(
    "values",
    [
        {**GB10_70B},
        {**GB10_70B, "report.said": "measured : 11.5 tok/s"},
        {"flag.enforce-eager": True, "report.said": "measured : 34 narrative / 46 code TPS"},
        {"flag.enforce-eager": True, "log.tokens_per_s": 58.1},
        {"torch.build": "cpu", "log.device": "cpu"},
        {"report.said": "note : without_mtp 342.2 tokens/s, with mtp 128.3 tokens/s slower"},
        {"report.said": "symptom : download is slow"},
        {**GB10_70B, "report.said": "symptom : engine hangs, Running>=1 and 0 tok/s"},
    ],
)
def test_who_does_not_complain_is_left_alone(values: dict[str, Any]) -> None:
    assert not loud(run("decode-speed", values))


def test_the_best_of_several_log_lines_counts() -> None:
    line = "INFO 09-01 10:00:00 [loggers.py:257] Engine 000: Avg generation throughput: {} tokens/s, Running: 1 reqs\n"
    log = read_log(text_stream(line.format("3.1") + line.format("58.1")), [], frozenset())
    rate = speed.observed(log.facts)
    assert rate is not None and rate.value == 58.1


@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        (
            "weights-on-network-storage",
            {"report.said": "symptom : loading takes 43 minutes", "model.name": "/mnt/efs/models/Q"},
        ),
        ("weights-on-network-storage", {"report.said": "symptom : 43 minutes reading the weights from NFS"}),
        (
            "compile-cache-not-kept",
            {"report.said": "symptom : cold start is 11 minutes, torch.compile on every restart"},
        ),
        ("slow-weight-loading", {"report.said": "symptom : takes forever to load a 7B model"}),
    ],
)
def test_a_slow_start(wanted: str, values: dict[str, Any]) -> None:
    assert [f.id for f in run("load-speed", values).findings] == [wanted]
    assert not run("decode-speed", values).findings


def test_a_start_that_nobody_calls_slow() -> None:
    assert run("load-speed", {"model.name": "/mnt/efs/models/Q"}).state == "unknown"
    assert run("load-speed", {"report.said": "note : server starts and answers"}).state == "unknown"


@pytest.mark.parametrize(
    ("name", "quant", "gb"),
    [
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", ["nvfp4"], 40.6),
        ("Qwen/Qwen3.6-35B-A3B-FP8", ["fp8"], 3.0),
        ("openai/gpt-oss-120b", [], 3.1),
        ("gemma-3-27b-it-q4_0.gguf", ["gguf"], 14.9),
    ],
)
def test_bytes_that_a_token_reads(name: str, quant: list[str], gb: float) -> None:
    size = speed.bytes_per_token(facts({"model.name": name, "model.quant": quant}), {"gpt-oss-120b": 5.1})
    assert size is not None and size[0] == pytest.approx(gb, rel=0.02)


@given(st.text(max_size=300), st.floats(0, 1e6))
def test_never_raises(text: str, rate: float) -> None:
    values = {
        "report.said": text,
        "model.name": text or "x",
        "log.tokens_per_s": rate,
        "gpu.names": ["NVIDIA GB10", text],
    }
    for check in ("decode-speed", "load-speed"):
        run(check, values)


def test_speeds_are_read_from_a_paste() -> None:
    rate = speed.observed(parse_env_text("GPU 0: NVIDIA GB10\nmeasured                     : 4.0-4.2 tok/s\n"))
    assert rate is not None and rate.value == 4.0


def test_a_build_from_source_is_not_judged_by_the_published_wheel() -> None:
    blackwell = {"gpu.cc": "12.0", "gpu.vendor": "nvidia", "engine": "vllm"}
    assert [f.id for f in run("gpu-code", {**blackwell, "pkg.vllm": "0.8.5"}).findings] == ["no-gpu-code-vllm"]
    assert not run("gpu-code", {**blackwell, "pkg.vllm": "0.8.5.dev169+gce17db808"}).findings
