"""Has the GPU the compute capability that vLLM's kernels for this quantisation start at?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Fix, Outcome

# AWQ, FP8, FP4 and compressed-tensors start at Turing; plain GPTQ (6.0) and bitsandbytes (7.0) before it.
_FIRST = (7, 5)
_STORED = ("awq", "fp8", "fp8-block", "nvfp4", "mxfp4", "compressed-tensors")
_ASKED = ("awq*", "fp8", "compressed-tensors", "modelopt*", "mxfp4")
_SOURCES = ["https://github.com/vllm-project/vllm/issues/4202", "https://github.com/vllm-project/vllm/issues/1488"]


def _method(facts: Facts) -> tuple[bool | None, Fact | None]:
    asked, flag = read.matching(facts, "flag.quantization", *_ASKED)
    if asked:
        return True, flag
    return read.matching(facts, "model.quant", *_STORED)


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.engine(facts) not in (None, "vllm") or read.other_vendor(facts):
        return CHECK.not_applicable("another engine, or no NVIDIA GPU")
    needs, says = _method(facts)
    gpu = read.capability(facts)
    if needs is False:
        return CHECK.not_applicable("no quantisation that needs a newer GPU")
    if needs is None or says is None or gpu is None:
        return CHECK.unknown("the quantisation of the model, and gpu.cc")
    if gpu[1] >= _FIRST:
        return CHECK.ok("the GPU is new enough for this quantisation")
    vllm = read.version(facts, "pkg.vllm")
    fork = read.is_fork(facts) or (vllm is not None and not vllm.within(">=0.2,<1"))
    if fork or facts.get("command.image") or read.engine(facts) is None:
        return CHECK.unknown("a release of vLLM; forks and images for Volta bring kernels of their own")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the weights were loaded")
    return CHECK.found(
        read.finding(
            "quant-needs-turing",
            "This quantisation needs compute capability 7.5, the GPU has less",
            "quantization",
            "error",
            "vLLM's AWQ, FP8, FP4 and compressed-tensors kernels start at Turing (7.5); on Volta (V100) and older the release "
            "refuses the checkpoint. Forks for V100 exist.",
            [read.quote(gpu[0], ">=7.5"), read.quote(says), *([vllm.evidence()] if vllm else [])],
            [
                Fix(
                    "Take a GPTQ checkpoint, or bitsandbytes on Volta, with half precision.",
                    "vllm serve OWNER/MODEL-GPTQ-Int4 --dtype half",
                ),
                Fix("Or a GGUF in llama.cpp.", "llama-server -hf OWNER/MODEL-GGUF:Q4_K_M -ngl 99"),
            ],
            _SOURCES,
            "maintainer-confirmed",
            explains=["quant-method-gpu-too-old", "quant-needs-ampere-before-013", "bf16-below-sm80"],
        )
    )


CHECK = Check("quant-gpu", "Quantisation against the GPU generation", run)
