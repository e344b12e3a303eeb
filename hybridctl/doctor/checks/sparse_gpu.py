"""Can this GPU run the sparse attention (QSA) of Qwen4Exp? Its kernels are bfloat16 only, which Turing and Volta lack."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Fix, Outcome


def run(context: Context) -> Outcome:
    facts = context.facts
    ours, model = read.is_architecture(facts, *read.QWEN4EXP)
    if ours is False or read.engine(facts) not in (None, "vllm"):
        return CHECK.not_applicable("no Qwen4Exp model in vLLM")
    gpu, vllm = read.capability(facts), read.version(facts, "pkg.vllm")
    if ours is None or model is None or gpu is None:
        return CHECK.unknown("the architecture of the model, and gpu.cc")
    if gpu[1] >= (8, 0):
        return CHECK.ok("the GPU has bfloat16")
    if vllm is None or not vllm.within(">=0.29"):
        return CHECK.unknown("a vLLM release; forks exist that run it in float16")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the model was loaded")
    return CHECK.found(
        read.finding(
            "qsa-needs-ampere",
            "Sparse attention of Qwen4Exp needs a GPU with bfloat16",
            "backend-choice",
            "error",
            "The QSA kernels of vLLM accept bfloat16 only; GPUs before Ampere (compute capability 8.0) have none, and --dtype "
            "half is refused.",
            [read.quote(gpu[0], ">=8.0"), read.quote(model), vllm.evidence()],
            [Fix("Use an Ampere or newer GPU, or a fork that carries float16 kernels for it.", None)],
            [
                "https://github.com/1CatAI/1Cat-vLLM/pull/345",
                "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/models/qwen4_exp/common/qsa_cache.py",
            ],
            "measured",
            explains=["bf16-below-sm80", "qsa-dtype-must-be-bf16"],
        )
    )


CHECK = Check("sparse-gpu", "Sparse attention against the GPU generation", run)
