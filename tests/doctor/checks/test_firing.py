"""Each check fires on one set of facts, is quiet with one fact changed, and says unknown when a fact that it needs is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.checks import Context, discover
from hybridctl.doctor.facts.model import KEYS, Facts, Origin
from hybridctl.doctor.findings import AREAS
from hybridctl.doctor.knowledge import load

from .making import facts, loud, run

KNOWN = load().entries
SERVE = {"command.form": "serve", "engine": "vllm"}
FLASH_NEXT = {"model.architecture": ["Qwen4ExpForConditionalGeneration"], "model.hybrid": True, "model.moe": True}
BLOCKS = {"config.moe_intermediate_size": 640, "config.quantization_config.weight_block_size": ["128", "128"]}
GDN = {
    "config.linear_num_value_heads": 48,
    "config.linear_num_key_heads": 16,
    "config.linear_value_head_dim": 128,
    "config.linear_key_head_dim": 128,
    "config.linear_conv_kernel_dim": 4,
    "config.num_attention_heads": 24,
    "config.num_key_value_heads": 2,
    "config.head_dim": 256,
    "config.mamba_ssm_dtype": "float32",
}


@dataclass
class Case:
    check: str
    finding: str
    area: str
    severity: str
    facts: dict[str, Any]
    quiet: dict[str, Any]
    """Changed facts with which nothing above info is said."""
    needs: list[str] = field(default_factory=list)
    """Keys without which the check can't tell."""


CASES = [
    Case(
        "model-support", "architecture-not-in-vllm", "arch-unknown", "error",
        {"engine": "vllm", "pkg.vllm": "0.16.0", "model.architecture": ["Qwen3_5MoeForConditionalGeneration"]},
        {"pkg.vllm": "0.17.0"}, ["pkg.vllm", "model.architecture"],
    ),
    Case(
        "model-support", "architecture-not-in-vllm", "arch-unknown", "error",
        {"engine": "vllm", "pkg.vllm": "0.28.0", "model.family": "qwen4_exp"}, {"pkg.vllm": "0.29.0"}, ["pkg.vllm"],
    ),
    Case(
        "model-support", "architecture-not-in-vllm", "arch-unknown", "error",
        {"engine": "vllm", "pkg.vllm": "0.24.0", "model.architecture": ["BambaForCausalLM"]}, {"pkg.vllm": "0.23.0"},
    ),
    Case(
        "model-support", "model-type-not-in-transformers", "transformers-mismatch", "error",
        {"engine": "transformers", "pkg.transformers": "4.55.4", "model.type": ["qwen3_next"]},
        {"pkg.transformers": "4.57.0"}, ["pkg.transformers", "model.type"],
    ),
    Case(
        "model-support", "model-type-not-in-transformers", "transformers-mismatch", "error",
        {"engine": "vllm", "pkg.vllm": "0.32.0", "pkg.transformers": "5.15.1", "model.type": ["qwen4_exp", "qwen4_exp_text"]},
        {"pkg.vllm": "0.31.0"},
    ),
    Case(
        "wheel-cuda-driver", "cu13-torch-on-cu12-driver", "driver-cuda", "error",
        {"torch.cuda": "13.0", "driver.version": "570.86.10", "driver.cuda": "12.8", "pkg.vllm": ">=0.12.0"},
        {"torch.cuda": "12.8"}, ["torch.cuda"],
    ),
    Case(
        "wheel-cuda-driver", "cu13-torch-on-cu12-driver", "driver-cuda", "error",
        {"torch.cuda": "13.0", "driver.cuda": "12.4"}, {"driver.cuda": "13.0"}, ["driver.cuda"],
    ),
    Case(
        "wheel-cuda-driver", "driver-older-than-cuda-major", "driver-cuda", "warning",
        {"pkg.vllm": "0.20.2", "driver.version": "535"}, {"pkg.vllm": "0.19.1"}, ["pkg.vllm", "driver.version"],
    ),
    Case(
        "wheel-cuda-driver", "driver-older-than-cuda-major", "driver-cuda", "error",
        {"torch.cuda": "12.4", "driver.version": "470.82.01"}, {"driver.version": "525.60.13"}, ["driver.version"],
    ),
    Case(
        "wheel-torch-cuda", "cu13-wheel-cu12-torch", "torch-abi", "error",
        {"pkg.vllm": "0.22.0", "torch.cuda": "12.9"}, {"pkg.vllm": "0.19.1"}, ["pkg.vllm", "torch.cuda"],
    ),
    Case(
        "wheel-torch-cuda", "cu13-wheel-cu12-torch", "torch-abi", "error",
        {"pkg.vllm": "0.22.0", "command.form": "pip", "flag.torch-backend": "cu129"},
        {"flag.torch-backend": "cu130"}, ["flag.torch-backend"],
    ),
    Case(
        "wheel-torch-cuda", "cu12-wheel-cu13-torch", "torch-abi", "error",
        {"vllm.cuda": "12.9", "torch.cuda": "13.0"}, {"vllm.cuda": "13.0"}, ["torch.cuda"],
    ),
    Case(
        "ptx-driver", "wheel-ptx-newer-than-driver", "driver-cuda", "error",
        {"pkg.vllm": "0.17.1", "gpu.cc": "12.0", "driver.version": "570.124.06", "gpu.names": ["NVIDIA GeForce RTX 5090"]},
        {"driver.version": "575.57.08"}, ["pkg.vllm", "gpu.cc", "driver.version"],
    ),
    Case(
        "ptx-driver", "wheel-ptx-newer-than-driver", "driver-cuda", "warning",
        {"pkg.vllm": "0.11.0", "gpu.cc": "10.0", "driver.cuda": "12.6"}, {"pkg.vllm": "0.8.5"},
    ),
    Case(
        "gpu-code", "no-gpu-code-vllm", "driver-cuda", "error",
        {"pkg.vllm": "0.9.0", "gpu.cc": "12.0"}, {"pkg.vllm": "0.9.2"}, ["pkg.vllm", "gpu.cc"],
    ),
    Case(
        "gpu-code", "no-gpu-code-torch", "driver-cuda", "error",
        {"torch.cuda": "12.4", "gpu.cc": "12.0"}, {"torch.cuda": "12.8"}, ["torch.cuda", "gpu.cc"],
    ),
    Case(
        "gpu-code", "volta-needs-cu12-wheel", "driver-cuda", "error",
        {"pkg.vllm": "0.20.0", "gpu.cc": "7.0"}, {"pkg.vllm": "0.19.1"}, ["pkg.vllm"],
    ),
    Case(
        "gpu-code", "no-gpu-code-torch", "driver-cuda", "error",
        {"torch.cuda": "13.0", "gpu.cc": "7.0"}, {"torch.cuda": "12.6"}, ["torch.cuda"],
    ),
    Case(
        "gpu-code", "no-gpu-code-torch", "driver-cuda", "error",
        {"pkg.torch": "2.9.0", "torch.cuda": "12.8", "gpu.cc": "6.0"}, {"torch.cuda": "12.6"}, ["gpu.cc"],
    ),
    Case(
        "gpu-code", "no-gpu-code-torch", "driver-cuda", "error",
        {"pkg.torch": "2.11.0", "torch.cuda": "12.8", "gpu.cc": "7.0"}, {"pkg.torch": "2.10.0"}, ["gpu.cc"],
    ),
    Case(
        "triton-ptxas", "triton-ptxas-unknown-gpu", "kernel-compile", "error",
        {"pkg.torch": "2.8.0", "torch.build": "cuda", "gpu.cc": "12.1"}, {"torch.build": "cpu"}, ["gpu.cc"],
    ),
    Case(
        "triton-ptxas", "triton-ptxas-unknown-gpu", "kernel-compile", "error",
        {"pkg.triton": "3.5.0+git7416ffcb", "gpu.cc": "12.1"}, {"pkg.triton": "3.6.0"}, ["pkg.triton", "gpu.cc"],
    ),
    Case(
        "triton-ptxas", "triton-ptxas-unknown-gpu", "kernel-compile", "error",
        {"pkg.torch": "2.9.1", "gpu.cc": "12.1"}, {"env.TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}, ["pkg.torch"],
    ),
    Case(
        "torch-pins", "torch-not-the-pinned-one", "torch-abi", "error",
        {"pkg.vllm": "0.11.0", "pkg.torch": "2.9.0"}, {"pkg.torch": "2.8.0"}, ["pkg.torch"],
    ),
    Case(
        "torch-pins", "torchvision-for-another-torch", "torch-abi", "error",
        {"pkg.torch": "2.8.0", "pkg.torchvision": "0.22.1"}, {"pkg.torchvision": "0.23.0"}, ["pkg.torch", "pkg.torchvision"],
    ),
    Case(
        "torch-pins", "torchvision-for-another-torch", "torch-abi", "error",
        {"pkg.torch": "2.11.0+cu130", "pkg.torchvision": "0.26.0+cu129"}, {"pkg.torchvision": "0.26.0+cu130"},
    ),
    Case(
        "torch-pins", "two-cuda-majors", "torch-abi", "warning",
        {"pkg.nvidia-nccl-cu12": "2.27.3", "pkg.nvidia-nccl-cu13": "2.28.9"}, {"platform.container": True},
    ),
    Case(
        "flashinfer-parts", "flashinfer-parts-differ", "torch-abi", "error",
        {"pkg.flashinfer-python": "0.6.14", "pkg.flashinfer-cubin": "0.6.13"},
        {"pkg.flashinfer-cubin": "0.6.14"}, ["pkg.flashinfer-python"],
    ),
    Case(
        "python-version", "python-outside-range", "config", "error",
        {"pkg.vllm": "0.33.0", "platform.python": "3.10.12", "command.form": "pip"},
        {"platform.python": "3.12.3"}, ["platform.python", "pkg.vllm"],
    ),
    Case(
        "glibc", "glibc-too-old", "torch-abi", "error",
        {"pkg.vllm": "0.20.2", "platform.glibc": "2.31", "command.form": "pip"},
        {"pkg.vllm": "0.22.0"}, ["platform.glibc", "pkg.vllm"],
    ),
    Case(
        "glibc", "glibc-too-old", "torch-abi", "error",
        {"pkg.vllm": "0.20.0", "vllm.cuda": "12.9", "platform.glibc": "2.31"}, {"platform.glibc": "2.34"},
    ),
    Case(
        "glibc", "glibc-too-old", "torch-abi", "error",
        {"pkg.vllm": "0.30.0+cpu", "platform.glibc": "2.35", "command.form": "pip"}, {"platform.glibc": "2.39"},
    ),
    Case(
        "transformers-range", "transformers-outside-range", "transformers-mismatch", "error",
        {"pkg.vllm": "0.11.0", "pkg.transformers": "5.2.0"}, {"pkg.transformers": "4.57.1"}, ["pkg.vllm", "pkg.transformers"],
    ),
    Case(
        "transformers-range", "transformers-outside-range", "transformers-mismatch", "error",
        {"pkg.vllm": "0.17.1", "pkg.transformers": "5.3.0", "model.type": ["qwen3_5", "qwen3_5_text"]},
        {"pkg.vllm": "0.19.1", "pkg.transformers": "5.6.0"},
    ),
    Case(
        "transformers-range", "transformers-outside-range", "transformers-mismatch", "warning",
        {"pkg.vllm": "0.32.0", "pkg.transformers": "5.10.4"}, {"pkg.vllm": "0.30.0"},
    ),
    Case(
        "head-split", "tensor-parallel-does-not-divide", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 16, "config.num_attention_heads": 24},
        {"flag.tensor-parallel-size": 8}, ["config.num_attention_heads"],
    ),
    Case(
        "head-split", "tensor-parallel-does-not-divide", "parallelism", "error",
        {**SERVE, **GDN, "flag.tensor-parallel-size": 3}, {"flag.tensor-parallel-size": 2},
    ),
    Case(
        "head-split", "tensor-parallel-does-not-divide", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 6, "config.num_attention_heads": 24, "config.vision_config.num_heads": 16},
        {"flag.mm-encoder-tp-mode": "data"},
    ),
    Case(
        "head-split", "tensor-parallel-does-not-divide", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 4, "config.num_attention_heads": 8, "config.num_key_value_heads": 6},
        {"config.num_key_value_heads": 2},
    ),
    Case(
        "head-split", "tensor-parallel-does-not-divide", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 4, "config.mamba_num_heads": 128, "config.n_groups": 2}, {"config.n_groups": 1},
    ),
    Case(
        "block-split", "expert-width-not-in-blocks", "parallelism", "error",
        {"engine": "sglang", "command.form": "serve", "flag.tensor-parallel-size": 4, **BLOCKS},
        {"flag.expert-parallel-size": 4}, ["flag.tensor-parallel-size", "config.moe_intermediate_size"],
    ),
    Case(
        "block-split", "expert-width-not-in-blocks", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 8, **BLOCKS}, {"flag.enable-expert-parallel": True},
    ),
    Case(
        "block-split", "expert-width-not-in-blocks", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 4, "flag.data-parallel-size": 2, **BLOCKS}, {"flag.data-parallel-size": 1},
    ),
    Case(
        "block-split", "shared-expert-width-not-in-blocks", "parallelism", "error",
        {
            **SERVE, "flag.tensor-parallel-size": 8, "model.architecture": ["Qwen3_5MoeForConditionalGeneration"],
            "model.quant": ["fp8-block"], "config.shared_expert_intermediate_size": 512,
        },
        {"flag.tensor-parallel-size": 4},
    ),
    Case(
        "block-split", "mlp-width-not-in-blocks", "parallelism", "error",
        {
            **SERVE, "flag.tensor-parallel-size": 8, "model.moe": False, "model.quant": ["fp8-block"],
            "config.intermediate_size": 3200,
        },
        {"config.intermediate_size": 17408},
    ),
    Case(
        "block-split", "nvfp4-expert-width-not-in-groups", "parallelism", "warning",
        {**SERVE, "flag.tensor-parallel-size": 4, "model.quant": ["nvfp4"], "gpu.cc": "12.0", "config.moe_intermediate_size": 640},
        {"flag.moe-backend": "marlin"},
    ),
    Case(
        "gpu-count", "more-ranks-than-gpus", "parallelism", "error",
        {**SERVE, "flag.tensor-parallel-size": 4, "env.CUDA_VISIBLE_DEVICES": "0,1"},
        {"env.CUDA_VISIBLE_DEVICES": "0,1,2,3"}, ["env.CUDA_VISIBLE_DEVICES"],
    ),
    Case(
        "quant-flag", "quant-flag-mismatch", "quantization", "error",
        {**SERVE, "flag.quantization": "awq", "config.quantization_config.quant_method": "gptq"},
        {"flag.quantization": "gptq_marlin"}, ["flag.quantization", "config.quantization_config.quant_method"],
    ),
    Case(
        "quant-flag", "quant-flag-mismatch", "quantization", "error",
        {"engine": "sglang", "flag.quantization": "awq", "model.quant": ["none"]},
        {"flag.quantization": "fp8"}, ["model.quant"],
    ),
    Case(
        "group-split", "quant-group-cut", "quantization", "error",
        {
            **SERVE, "flag.tensor-parallel-size": 2, "model.quant": ["awq"], "config.quantization_config.group_size": 128,
            "config.intermediate_size": 29568,
        },
        {"config.intermediate_size": 29696}, ["config.quantization_config.group_size", "config.intermediate_size", "model.quant"],
    ),
    Case(
        "quant-gpu", "quant-needs-turing", "quantization", "error",
        {**SERVE, "gpu.cc": "7.0", "model.quant": ["awq"], "pkg.vllm": "0.9.2"}, {"gpu.cc": "7.5"}, ["gpu.cc", "model.quant"],
    ),
    Case(
        "quant-gpu", "quant-needs-turing", "quantization", "error",
        {**SERVE, "gpu.cc": "7.0", "flag.quantization": "fp8"}, {"pkg.vllm": "1Cat-vLLM 0.0.3"},
    ),
    Case(
        "sparse-gpu", "qsa-needs-ampere", "backend-choice", "error",
        {**FLASH_NEXT, "engine": "vllm", "gpu.cc": "7.5", "pkg.vllm": "0.30.0"}, {"gpu.cc": "8.0"}, ["gpu.cc", "pkg.vllm"],
    ),
    Case(
        "windows-mount", "weights-on-windows-drive", "slow", "warning",
        {"engine": "vllm", "command.form": "docker", "command.mounts": ["m:\\models\\Qwen3-VL-4B"]},
        {"command.mounts": ["/srv/models"]}, ["command.mounts"],
    ),
    Case(
        "windows-mount", "weights-on-windows-drive", "slow", "warning",
        {**SERVE, "platform.wsl": True, "flag.model": "/mnt/c/models/x"}, {"platform.wsl": False},
    ),
    Case(
        "windows-mount", "weights-on-windows-drive", "slow", "warning",
        {"command.form": "docker", "command.mounts": ["/mnt/c/Users/me/models"]}, {"command.mounts": ["/mnt/data/models"]},
    ),
    Case(
        "shared-memory", "shm-small-for-ranks", "nccl-shm", "warning",
        {"command.form": "docker", "flag.tensor-parallel-size": 2, "command.shm": "64m"}, {"command.shm": "host"},
    ),
    Case(
        "shared-memory", "shm-small-for-ranks", "nccl-shm", "warning",
        {**SERVE, "flag.tensor-parallel-size": 2, "platform.shm_gib": 0.0625}, {"platform.shm_gib": 8}, ["platform.shm_gib"],
    ),
    Case(
        "state-block", "align-block-gt-max-batched-tokens", "kv-cache", "error",
        {
            **SERVE, **GDN, "model.hybrid": True, "pkg.vllm": "0.17.0", "flag.enable-prefix-caching": True,
            "flag.max-num-batched-tokens": 1024,
        },
        {"flag.max-num-batched-tokens": 2048}, ["model.hybrid"],
    ),
    Case(
        "state-block", "prefix-caching-needs-chunked-prefill", "config", "error",
        {
            **SERVE, "model.hybrid": True, "pkg.vllm": "0.20.0", "flag.enable-prefix-caching": True,
            "flag.enable-chunked-prefill": False,
        },
        {"flag.enable-prefix-caching": False}, ["pkg.vllm"],
    ),
    Case(
        "ple-table", "ple-table-on-gpu-oom", "oom", "warning",
        {**SERVE, **FLASH_NEXT, "flag.tensor-parallel-size": 4, "gpu.memory_gib": 80.0, "model.quant": ["fp8-block"]},
        {"env.VLLM_PLE_CPU_OFFLOAD": "1"}, ["gpu.memory_gib", "command.form"],
    ),
    Case(
        "ple-table", "ple-table-on-gpu-oom", "oom", "error",
        {
            **SERVE, **FLASH_NEXT, "flag.tensor-parallel-size": 4, "gpu.memory_gib": 80.0, "model.quant": ["fp8-block"],
            "model.size_gib": 172.8, "pkg.vllm": "0.29.0",
        },
        {"pkg.vllm": "0.30.0"},
    ),
    Case(
        "ple-table", "ple-host-ram-exhausted", "oom", "error",
        {**FLASH_NEXT, "engine": "vllm", "pkg.vllm": "0.33.0", "platform.ram_gib": 31.2, "model.quant": ["fp8-block"]},
        {"platform.ram_gib": 125.6}, ["platform.ram_gib"],
    ),
    Case(
        "ple-table", "ple-offload-env-ignored", "config", "warning",
        {**FLASH_NEXT, "engine": "vllm", "pkg.vllm": "0.29.0", "env.VLLM_PLE_CPU_OFFLOAD": "1"}, {"pkg.vllm": "0.30.0"},
        ["pkg.vllm"],
    ),
    Case(
        "memory-fit", "weights-larger-than-gpus", "oom", "error",
        {**SERVE, "flag.tensor-parallel-size": 1, "model.size_gib": 51.7, "gpu.memory_gib": 31.8},
        {"flag.tensor-parallel-size": 2}, ["model.size_gib", "gpu.memory_gib", "flag.tensor-parallel-size"],
    ),
]  # fmt: skip
IDS = [f"{c.check}-{i}" for i, c in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_fires(case):
    outcome = run(case.check, case.facts)
    found = {f.id: f for f in outcome.findings}
    assert case.finding in found, outcome
    finding = found[case.finding]
    assert (finding.area, finding.severity) == (case.area, case.severity)
    assert finding.area in AREAS
    assert finding.fix and finding.cause and all(s.startswith("https://") for s in finding.source)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_piece_of_evidence_is_a_stated_fact(case):
    """Evidence is a given fact, a default of a known launch line, or a sum of given facts: its quote stands in the input."""
    given = facts(case.facts)
    quotes = {f.origin.quote for f in given}
    for finding in run(case.check, case.facts).findings:
        assert any(e.quote for e in finding.evidence)
        assert all(e.quote in quotes for e in finding.evidence if e.quote)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_a_finding_explains_exists(case):
    for finding in run(case.check, case.facts).findings:
        assert set(finding.explains) <= set(KNOWN)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_quiet_with_one_fact_changed(case):
    outcome = run(case.check, {**case.facts, **case.quiet})
    assert case.finding not in {f.id for f in loud(outcome)}, outcome


@pytest.mark.parametrize(
    ("case", "key"), [(c, key) for c in CASES for key in c.needs], ids=lambda v: v if isinstance(v, str) else v.check
)
def test_unknown_without_a_needed_fact(case, key):
    kept = {k: v for k, v in case.facts.items() if k != key}
    if key.startswith("flag.") and key != "flag.torch-backend":
        kept.pop("command.form", None)  # else a missing flag is known to be unset
    assert run(case.check, kept).state == "unknown"


@pytest.mark.parametrize("check", discover(), ids=lambda c: c.id)
def test_nothing_known_is_never_ok(check):
    assert check.run(Context(Facts())).state == "unknown"


_VALUES = st.one_of(
    st.booleans(),
    st.integers(-3, 2**60),
    st.floats(),
    st.text(max_size=12),
    st.lists(st.text(max_size=6), max_size=3),
    st.sampled_from(
        ["0.33.0", ">=0.20", "cu130", "12.9", "nan", "inf", "9.0", "0", "-1", "[128, 128]", "2.14.0+cu130"]
    ),
)
_OPEN = [
    "pkg.vllm", "pkg.torch", "pkg.triton", "pkg.torchvision", "pkg.transformers", "pkg.flashinfer-python",
    "env.CUDA_VISIBLE_DEVICES", "env.VLLM_PLE_CPU_OFFLOAD", "flag.tensor-parallel-size", "flag.data-parallel-size",
    "flag.expert-parallel-size",
    "flag.max-num-batched-tokens", "flag.engram-config", "flag.gpu-memory-utilization", "flag.enable-prefix-caching",
    "config.quantization_config.weight_block_size", "config.moe_intermediate_size", "config.ple_embedding_dtype",
    *(k for k in GDN), *(k for k in KEYS if not k.endswith(".*")),
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(_OPEN), _VALUES, max_size=12))
def test_no_value_makes_a_check_raise(values):
    given_facts = Facts()
    for key, value in values.items():
        given_facts.add(key, value, Origin("env", 1, str(value)))
    for check in discover():
        outcome = check.run(Context(given_facts))
        assert outcome.state in ("ok", "finding", "not-applicable", "unknown")
        assert (outcome.state == "finding") == bool(outcome.findings)
