"""Are there GPUs of different kinds? CUDA then counts them in another order than nvidia-smi, unless it is told not to."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import is_for_gpu
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.findings import Fix, Outcome, Severity


def run(context: Context) -> Outcome:
    facts = context.facts
    if is_for_gpu(facts) is False:
        return CHECK.not_applicable("nothing here is built for NVIDIA's GPUs")
    names = facts.get("gpu.names")
    if names is None or not isinstance(names.value, list):
        return CHECK.unknown("gpu.names")
    kinds = list(dict.fromkeys(names.value))
    if len(kinds) < 2:
        return CHECK.ok("one kind of GPU")
    if read.other_vendor(facts):
        return CHECK.not_applicable("not NVIDIA's GPUs")
    order = facts.get("env.CUDA_DEVICE_ORDER")
    if order is None and names.origin.source != "local":
        return CHECK.unknown("env.CUDA_DEVICE_ORDER")  # a report names few of its variables
    if order is not None and str(order.value).strip() == "PCI_BUS_ID":
        return CHECK.ok("CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA counts as nvidia-smi does")
    ranks = layout(facts)
    several = ranks.world is not None and ranks.world > 1
    severity: Severity = "warning" if several or facts.get("env.CUDA_VISIBLE_DEVICES") else "info"
    model = facts.value("model.name") or "MODEL"
    return CHECK.found(
        read.finding(
            "different-gpus-unordered",
            f"Different GPUs ({', '.join(kinds)}), counted the fastest first",
            "parallelism",
            severity,
            "CUDA gives number 0 to the fastest GPU, while nvidia-smi and vLLM's own look at the hardware count by the bus: a "
            "number in CUDA_VISIBLE_DEVICES may mean another GPU than you think, and vLLM may judge one GPU and use another."
            + (" Over several GPUs the smallest memory and the slowest one decide." if several else ""),
            [read.quote(names, "one kind, or CUDA_DEVICE_ORDER=PCI_BUS_ID"), *([read.quote(order)] if order else [])],
            [Fix("Count by the bus.", f"CUDA_DEVICE_ORDER=PCI_BUS_ID vllm serve {model}")],
            ["https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/platforms/cuda.py"],
            "maintainer-confirmed",
        )
    )


CHECK = Check("gpu-order", "GPUs of different kinds", run, phase="config")
