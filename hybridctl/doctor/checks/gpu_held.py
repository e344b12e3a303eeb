"""Is so much of a GPU's memory free as the launch will claim? What another process holds is missing."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import is_for_gpu
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.facts.local_gpus import HOST_NUMBER
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome
from hybridctl.patterns import late

_SOURCES = [
    "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/worker/utils.py",
    "https://github.com/vllm-project/vllm/issues/48140",
]
_PID = late(r"\bpid (\d+)")
_BUSY = 0.1
"""Share of a GPU that a desktop or a driver takes; a process that holds more is worth a word."""
_WORTH = 0.3
"""A smaller share of a GPU than this is hardly what anybody wants."""
_LEAST_SHARE = 0.9
"""No release of vLLM claims less by default."""


def _sizes(fact: Fact | None) -> list[float]:
    if fact is None or not isinstance(fact.value, list):
        return []
    try:
        return [float(text) for text in fact.value]
    except ValueError:
        return []


def _holders(facts: Facts) -> list[str]:
    fact = facts.get("gpu.processes")
    return fact.value if fact and isinstance(fact.value, list) else []


def _share(facts: Facts) -> tuple[float, Evidence | None]:
    for fact in facts.all("flag.gpu-memory-utilization"):
        if (stated := read.amount(facts, fact.key)) and stated[0] <= 1:
            return stated[0], read.quote(stated[1])
    return _LEAST_SHARE, None


def run(context: Context) -> Outcome:
    facts = context.facts
    if facts.get("process.pid"):
        return CHECK.not_applicable("the server runs and has its memory")
    if is_for_gpu(facts) is False:
        return CHECK.not_applicable("nothing here is built for NVIDIA's GPUs")
    free, total = facts.get("gpu.free_gib"), read.amount(facts, "gpu.memory_gib")
    sizes = _sizes(free)
    if free is None or not sizes or total is None:
        return CHECK.unknown("gpu.free_gib and gpu.memory_gib of this machine")
    names = facts.value("gpu.names")
    if isinstance(names, list) and len(set(names)) > 1:
        return CHECK.unknown("GPUs of one kind: among different ones the free memory belongs to none in particular")
    ranks = layout(facts).world if facts.flags_known() else None
    used = sizes[:ranks] if ranks else sizes
    share, says = _share(facts)
    claims = ranks is not None and read.engine(facts) in (None, "vllm")
    need = total[0] * (share if claims else 1 - _BUSY)
    short = [size for size in used if size < need]
    if not short:
        return CHECK.ok(f"{min(used):.1f} GiB are free on each GPU that is looked at")
    holders = _holders(facts)
    who = "; ".join(holders) or "no process that the driver names here"
    # A number of the host may be that of another process in here.
    pids = [m[1] for item in holders if (m := _PID.search(item)) and HOST_NUMBER not in item]
    fix = [Fix("End what is left of an earlier engine.", f"kill {' '.join(pids)}")] if pids else []
    fix.append(Fix("See who holds it.", "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv"))
    if claims:
        least = int(min(short) / total[0] * 100 - 2) / 100
        if least >= _WORTH:
            model = facts.value("model.name") or "MODEL"
            fix.append(Fix("Or ask for less.", f"vllm serve {model} --gpu-memory-utilization {least:.2f}"))
    return CHECK.found(
        read.finding(
            "any-free-memory-below-utilization" if claims else "gpu-memory-held",
            f"{min(short):.1f} GiB of {total[0]:.1f} GiB GPU memory are free"
            + (f", and vLLM claims {need:.1f}" if claims else ""),
            "oom",
            "error" if claims else "info",
            "Before it loads anything, vLLM checks that its share of the whole card is free, and stops if not. "
            f"It is held by: {who}.",
            [
                read.quote(free, f">={need:.1f} GiB"),
                read.quote(total[1]),
                *([read.quote(fact)] if (fact := facts.get("gpu.processes")) and holders else []),
                *([says] if says and claims else []),
            ],
            fix,
            _SOURCES,
            "maintainer-confirmed",
        )
    )


CHECK = Check("gpu-held", "GPU memory that is free against what is claimed", run, phase="config")
