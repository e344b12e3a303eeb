"""Are the weights alone larger than the GPUs? A coarse look, not at what remains for the caches."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.checks._ple import table_gib
from hybridctl.doctor.checks._size import least_weights_gib
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome

_DEFAULT_SHARE = 0.95  # no release takes more of a GPU by default


def _share(facts: Facts) -> tuple[float, Evidence | None]:
    for key in ("flag.gpu-memory-utilization", "flag.mem-fraction-static"):
        if (stated := read.amount(facts, key)) and stated[0] <= 1:
            return stated[0], read.quote(stated[1])
    return _DEFAULT_SHARE, None


def _shrinks(facts: Facts) -> bool:
    """Whether the launch keeps part of the weights elsewhere or makes them smaller while it loads them."""
    if read.flag(facts, "cpu-offload-gb", "offload-backend", "cpu-offload-params", "load-format", "quantize"):
        return True
    quantised = facts.value("model.quant")
    return read.flag(facts, "quantization") is not None and (quantised is None or quantised == ["none"])


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.engine(facts) not in (None, "vllm", "sglang"):
        return CHECK.not_applicable("this engine can leave layers in host memory")
    if _shrinks(facts):
        return CHECK.not_applicable("the launch offloads or quantises weights while it loads them")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the weights were loaded")
    size, memory, ranks = least_weights_gib(facts), read.amount(facts, "gpu.memory_gib"), layout(facts)
    if size is None or memory is None or ranks.world is None or ranks.tp is None:
        return CHECK.unknown(
            "model.size_gib (or a name that tells size and quantisation), gpu.memory_gib and the launch line"
        )
    table = table_gib(facts) if read.is_architecture(facts, *read.QWEN4EXP)[0] else None
    least = max(0.0, size[0] - (table[0] if table else 0.0)) / ranks.world
    share, says = _share(facts)
    budget = memory[0] * share
    if least <= budget:
        return CHECK.ok(f"{least:.1f} GiB of weights a GPU, {budget:.1f} GiB to be had")
    gpus = next((n for n in (1, 2, 4, 8, 16) if least * ranks.world / n < budget * 0.85), None)
    name = facts.value("model.name") or "MODEL"
    fix = [Fix("Take a smaller quantisation of the model.", None)]
    if gpus:
        fix.insert(0, Fix(f"Spread it over {gpus} such GPUs.", f"vllm serve {name} --tensor-parallel-size {gpus}"))
    return CHECK.found(
        read.finding(
            "weights-larger-than-gpus",
            f"The weights alone need {least:.0f} GiB a GPU, and {budget:.0f} GiB can be had",
            "oom",
            "error",
            f"{size[0]:.1f} GiB of weights"
            + (f" less a {table[0]:.1f} GiB table that may lie in host memory" if table else "")
            + f" over "
            f"{ranks.world} GPU{'s' if ranks.world > 1 else ''} make {least:.1f} GiB each; {memory[0]:.1f} GiB x {share:g} = "
            f"{budget:.1f} GiB.",
            [
                read.quote(size[1], f"<={budget * ranks.world:.0f} GiB in all"),
                read.quote(memory[1]),
                ranks.tp.evidence,
                *([says] if says else []),
            ],
            fix,
            ["https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"],
            "inferred",
        )
    )


CHECK = Check("memory-fit", "Weights against GPU memory", run)
