"""Why answers may be slow: each function looks for one reason among the facts, and answers with a finding or ``None``."""

from __future__ import annotations

import re
from collections.abc import Callable

from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks import _speed as speed
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Finding, Fix
from hybridctl.gpus import lookup
from hybridctl.patterns import late

_CPU = late(r"\bcpu[ -]?only\b|\bon (?:the )?cpu\b|backend\W+cpu\b", re.IGNORECASE)
_THINKS = late(r"\bthink(?:s|ing)?\b|\breasoning\b", re.IGNORECASE)
_TOO_MUCH = late(
    r"exuberant|exorbitant|exhorbitant|too (?:much|long|many)|forever|endless|for (?:minutes|ages)|"
    r"a lot|slow|excessive|never stops",
    re.IGNORECASE,
)
_SHARED = late(
    r"concurren|second request|other requests?|queue|serial|one at a time|parallel requests|ttft|users", re.IGNORECASE
)
_OFFLOAD = ("cpu-offload-gb", "cpu-offload", "n-cpu-moe")
_VLLM_DOCS = "https://docs.vllm.ai/en/latest/configuration/optimization.html"
Say = tuple[Fact, ...]
"""What shows that it is slow: a remark, a speed, or both."""


def thinking(facts: Facts) -> Fact | None:
    for fact in facts.all("report.said"):
        if _THINKS.search(str(fact.value)) and _TOO_MUCH.search(str(fact.value)):
            return fact
    return None


def _finding(id: str, title: str, cause: str, said: Say, fix: list[Fix], source: list[str], more: Say = ()) -> Finding:
    return read.finding(
        id, title, "slow", "warning", cause, [read.quote(f) for f in (*said, *more)], fix, source, "inferred"
    )


def _long_thoughts(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    if thinking(facts) is None:
        return None
    return _finding(
        "thinking-takes-the-time",
        "The model thinks at length before each answer",
        "Thinking is on by default in the chat template; hundreds to thousands of tokens are written "
        "before the answer begins.",
        seen,
        [
            Fix(
                "Switch thinking off for the server, and on again for single requests through chat_template_kwargs.",
                "vllm serve MODEL --default-chat-template-kwargs '{\"enable_thinking\": false}'",
            ),
            Fix("Or limit it: reasoning_effort where the template has it, and max_tokens in the request."),
        ],
        ["https://qwen.readthedocs.io/en/latest/deployment/vllm.html", "https://github.com/QwenLM/Qwen3/issues/1466"],
    )


def _on_cpu(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    cpu = next((f for f in facts.all("log.device") if f.value == "cpu"), None)
    cpu = cpu or next((f for f in facts.all("torch.build") if f.value == "cpu"), None)
    cpu = cpu or next((f for f in facts.all("flag.device") if f.value == "cpu"), None)
    cpu = cpu or next((f for f in facts.all("report.said") if _CPU.search(str(f.value))), None)
    if cpu is None:
        return None
    return _finding(
        "decoding-on-cpu",
        "The model runs on the processor",
        "A token reads all active weights from main memory, at 40 to 400 GB/s instead of the GPU's "
        "300 to 8000: that bounds the speed, "
        "and prompts are worse still.",
        seen,
        [
            Fix(
                "Use a GPU build, and see that it finds the GPU.",
                "python -c 'import torch; print(torch.cuda.is_available())'",
            ),
            Fix(
                "If it has to be the CPU: 4-bit weights, a model with few active parameters, one "
                "NUMA node, AMX or AVX-512."
            ),
        ],
        ["https://github.com/vllm-project/vllm/issues/7379", "https://github.com/vllm-project/vllm/issues/12153"],
        (cpu,),
    )


def _offloaded(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    flag = read.flag(facts, *_OFFLOAD)
    if flag is None or str(flag.value) in ("0", "0.0", "False"):
        return None
    return _finding(
        "weights-offloaded-to-ram",
        "A part of the weights is read from main memory for every token",
        "What is offloaded crosses PCIe (or is computed by the CPU) at every step, so that link sets the speed.",
        seen,
        [
            Fix(
                "Take a smaller quantisation or more GPUs, so that everything fits; lower the "
                "context before offloading."
            )
        ],
        [_VLLM_DOCS],
        (flag,),
    )


def _eager(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    flag = read.flag(facts, "enforce-eager", "disable-cuda-graph")
    if flag is None or str(flag.value).lower() not in ("true", "1"):
        return None
    return _finding(
        "eager-mode-decodes-slowly",
        "CUDA graphs are switched off, so the processor launches every kernel of every token",
        "In eager mode each token costs hundreds of kernel launches; small batches wait for the CPU, "
        "two to ten times longer than with "
        "graphs.",
        seen,
        [
            Fix(f"Leave --{flag.key.removeprefix('flag.')} out.", "vllm serve MODEL --gpu-memory-utilization 0.90"),
            Fix(
                "If capture fails or memory is short, capture fewer sizes.",
                "vllm serve MODEL --compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'",
            ),
        ],
        [
            "https://github.com/vllm-project/vllm/issues/4449",
            "https://github.com/scaleapi/llm-engine/pull/851",
            _VLLM_DOCS,
        ],
        (flag,),
    )


def _one_at_a_time(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    slots = read.number(facts, ("flag.max-num-seqs", "flag.max-running-requests", "flag.parallel"))
    waits = next((f for f in facts.all("report.said") if _SHARED.search(str(f.value))), None)
    if slots is None or slots.value > 4 or waits is None:
        return None
    found = _finding(
        "few-requests-at-once",
        f"The server works on {slots.value} request{'s' if slots.value > 1 else ''} at a time",
        "The others wait until one has ended, thinking included; their time to the first token is "
        "that of the whole answer before them.",
        seen,
        [
            Fix(
                "Admit more; on hybrid models each takes one state besides its KV blocks.",
                "vllm serve MODEL --max-num-seqs 8",
            )
        ],
        ["https://github.com/MiaAI-Lab/DeepSeek-v4-Flash-One-DGX-Spark/issues/7", _VLLM_DOCS],
    )
    found.evidence.append(slots.evidence)
    return found


def _bandwidth(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    roof = speed.roof(facts)
    if roof is None or roof.tokens_per_s > 25 or (rate and rate.value < 0.2 * roof.tokens_per_s):
        return None
    if rate and rate.value > 1.5 * roof.tokens_per_s:
        return None
    return _finding(
        "decode-bound-by-memory-bandwidth",
        f"One answer can't pass some {roof.tokens_per_s:.0f} tokens/s: memory bandwidth is the limit",
        f"Every token reads about {roof.gb_per_token:.0f} GB of weights; at {roof.gb_per_s:.0f} GB/s that is "
        f"{roof.tokens_per_s:.1f} tokens/s at best, and 60 to 80 % of it in practice. No backend or "
        f"flag is at fault.",
        seen,
        [
            Fix("Use a mixture-of-experts model with few active parameters, or fewer bits per weight."),
            Fix(
                "Speculative decoding reads the weights once for several tokens.",
                'vllm serve MODEL --speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\'',
            ),
            Fix("Send requests together: a batch shares each read, so the total grows almost with its size."),
        ],
        ["https://github.com/NVIDIA/dgx-spark-playbooks/pull/91", "https://github.com/vllm-project/vllm/issues/7379"],
        roof.facts,
    )


def _quantisation(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    name = facts.get("model.name")
    text = str(name.value).lower() if name else ""
    ranks = read.number(facts, ("flag.tensor-parallel-size",))
    act_order = next((f for f in facts.all("config.quantization_config.desc_act") if f.value is True), None)
    if act_order and ranks and ranks.value > 1:
        why, fact = (
            "GPTQ with desc_act: true reorders its columns, which a split over GPUs handles very slowly",
            act_order,
        )
        better = "Take a GPTQ checkpoint with desc_act: false, or split by layers with --pipeline-parallel-size"
    elif name and read.engine(facts) == "vllm" and (text.endswith(".gguf") or "-gguf" in text):
        why, fact = (
            "vLLM reads GGUF only experimentally; its kernels for it are far from the speed of AWQ, GPTQ or FP8",
            name,
        )
        better = "Serve an AWQ, GPTQ, FP8 or NVFP4 checkpoint of the model, or use llama.cpp for the GGUF"
    elif name and read.engine(facts) in ("vllm", "transformers") and re.search(r"bnb|bitsandbytes", text):
        why, fact = (
            "bitsandbytes weights are unpacked at every step; its kernels are made for training, not for serving",
            name,
        )
        better = "Serve an AWQ, GPTQ or FP8 checkpoint of the model"
    else:
        return None
    return _finding(
        "slow-quantisation-format",
        "The format of the weights has no fast kernels here",
        why + ".",
        seen,
        [Fix(better + ".")],
        [
            "https://docs.vllm.ai/en/latest/features/quantization/",
            "https://github.com/nlzy/vllm-gfx906/issues/3",
            "https://github.com/vllm-project/vllm/issues/15018",
        ],
        (fact,),
    )


def _pcie(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    ranks = read.number(facts, ("flag.tensor-parallel-size",))
    gpus = facts.get("gpu.names")
    if ranks is None or ranks.value < 2 or gpus is None or not isinstance(gpus.value, list):
        return None
    kinds = {g.kind if (g := lookup(name)) else None for name in gpus.value}
    cards = kinds <= {"geforce", "workstation", "radeon"} or all(
        re.search(r"PCIe|\bL4\b|L40S?|\bA10G?\b|\bA40\b|\bT4\b", n) for n in gpus.value
    )
    if not cards:
        return None
    return _finding(
        "tensor-parallel-over-pcie",
        "The GPUs exchange every layer's result over PCIe",
        "Tensor parallelism adds up results twice a layer. Without NVLink or peer access these go "
        "through PCIe or main memory, and may "
        "cost more than the second GPU brings.",
        seen,
        [
            Fix("If the model fits one GPU, run one copy on each.", "vllm serve MODEL --data-parallel-size 2"),
            Fix("Else split by layers, which exchanges little.", "vllm serve MODEL --pipeline-parallel-size 2"),
            Fix("See how the cards are connected: PIX or PXB is good, SYS is slow.", "nvidia-smi topo -m"),
        ],
        ["https://github.com/vllm-project/vllm/issues/4238", "https://github.com/noonghunna/club-3090/issues/356"],
        (gpus,),
    )


def _gdn_in_llamacpp(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    text = " ".join(str(f.value) for key in ("model.name", "report.said") for f in facts.all(key))
    if read.engine(facts) not in ("llama.cpp", "ollama", "lmstudio") or not re.search(
        r"qwen-?3[._ -]?(?:next|coder-next|5|6|8)|qwen3next|qwen35|delta.?net", text, re.IGNORECASE
    ):
        return None
    return _finding(
        "llamacpp-gated-delta-net-slow",
        "The gated-delta-net layers have no fast kernel in this llama.cpp back end",
        "The operators of these layers came to CPU, CUDA, Vulkan and ROCm one after the other; where "
        "one is missing or generic, the graph "
        "is split and parts run on the CPU.",
        seen,
        [
            Fix(
                "Take a current build, and compare back ends.", "llama-bench -m model.gguf -ngl 99 -fa 1 -p 512 -n 128"
            ),
            Fix("Fewer graph splits are better; the start log prints their number."),
        ],
        [
            "https://github.com/ggml-org/llama.cpp/issues/17936",
            "https://github.com/ggml-org/llama.cpp/issues/20292",
            "https://github.com/ggml-org/llama.cpp/issues/17751",
        ],
    )


def _far_below(facts: Facts, rate: speed.Rate | None, seen: Say) -> Finding | None:
    roof = speed.roof(facts)
    if roof is None or rate is None or rate.value > 0.2 * roof.tokens_per_s:
        return None
    return _finding(
        "decode-far-below-bandwidth",
        f"{rate.value:g} tokens/s where memory allows some {roof.tokens_per_s:.0f}",
        "The weights are not what takes the time: a fallback kernel (no tuned or no native one for "
        "this GPU and format), launches without "
        "graphs, or another program on the GPU.",
        seen,
        [
            Fix(
                "Look in the start log for the backend that was chosen, and for 'Falling back', 'not "
                "supported', 'default MoE config'."
            ),
            Fix("Compare another backend.", "vllm serve MODEL --moe-backend triton"),
        ],
        [_VLLM_DOCS, "https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/issues/10"],
        roof.facts,
    )


def unexplained(seen: Say) -> Finding:
    found = _finding(
        "reported-slow",
        "The report calls it slow; the facts given don't tell why",
        "None of the known reasons (CPU, offload, eager mode, memory bandwidth, PCIe, batch limit, "
        "format, thinking) shows in what was "
        "given.",
        seen,
        [
            Fix(
                "Measure one request alone: prefill and decode apart.",
                "vllm bench serve --model MODEL --num-prompts 8 --max-concurrency 1",
            ),
            Fix("Give the start log too: it names the backends, the graph sizes and every fallback."),
        ],
        [_VLLM_DOCS],
    )
    found.specificity = 0
    found.certainty = 0
    return found


REASONS: tuple[Callable[[Facts, speed.Rate | None, Say], Finding | None], ...] = (
    _long_thoughts, _on_cpu, _offloaded, _one_at_a_time, _eager, _quantisation, _bandwidth, _gdn_in_llamacpp, _pcie, _far_below,
)  # fmt: skip
