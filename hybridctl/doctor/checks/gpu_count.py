"""Are there as many GPUs as the launch asks for?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome, Severity


def _available(facts: Facts) -> tuple[int, Evidence, Severity] | None:
    """GPUs of one machine. A visibility variable is exact; a list in a report often names the kind once, so it proves nothing."""
    visible = facts.get("env.CUDA_VISIBLE_DEVICES")
    if visible and (text := str(visible.value).strip()):
        entries = [e for e in text.split(",") if e.strip()]
        return len(entries), read.quote(visible), "error"
    count = facts.get("gpu.count")
    if count and isinstance(count.value, (int, float)) and count.value >= 1:
        return int(count.value), read.quote(count), "error" if count.origin.source == "local" else "info"
    return None


def _several_machines(facts: Facts) -> bool:
    if read.flag(
        facts,
        "nnodes",
        "node-rank",
        "data-parallel-address",
        "dist-init-addr",
        "data-parallel-size-local",
        "ray-address",
    ):
        return True
    backend = read.flag(facts, "distributed-executor-backend")
    return backend is not None and str(backend.value).lower() in ("ray", "external_launcher")


def run(context: Context) -> Outcome:
    facts = context.facts
    if _several_machines(facts):
        return CHECK.not_applicable("the launch spans several machines")
    need = layout(facts)
    if need.world is None or need.tp is None:
        return CHECK.unknown("the launch line")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that every rank loaded its weights")
    available = _available(facts)
    if available is None:
        return CHECK.unknown("gpu.count or env.CUDA_VISIBLE_DEVICES")
    have, says, severity = available
    if need.world <= have:
        return CHECK.ok(f"{need.world} ranks on {have} GPUs")
    parts = [q.evidence for q in (need.tp, need.pp, need.dp) if q and q.value > 1]
    return CHECK.found(
        read.finding(
            "more-ranks-than-gpus",
            f"The launch asks for {need.world} GPUs and sees {have}",
            "parallelism",
            severity,
            "Tensor, pipeline and data-parallel sizes multiply to the number of GPUs; the start fails, or waits for those that "
            "are missing.",
            [Evidence(says.fact, says.value, f">={need.world} GPUs", says.origin, says.quote), *parts],
            [
                Fix(
                    f"Ask for {have}, or make more GPUs visible.",
                    f"vllm serve {facts.value('model.name') or 'MODEL'} --tensor-parallel-size {have}",
                )
            ],
            ["https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html"],
            "inferred",
        )
    )


CHECK = Check("gpu-count", "Ranks against GPUs", run)
