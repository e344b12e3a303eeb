"""Has the host as much memory as the launch asks of it by numbers? A container or WSL may leave it far less than there is."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import host_memory, runs_in_image
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.checks._size import least_weights_gib
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome

_SOURCES = [
    "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
    "https://docs.vllm.ai/en/latest/getting_started/installation/cpu.html",
]


def _asked(facts: Facts) -> tuple[float, list[Evidence]]:
    """GiB of host memory that flags and variables ask for by a number, and for the CPU the weights themselves."""
    total, says = 0.0, []
    ranks = layout(facts).world or 1
    for key, times in (
        ("flag.cpu-offload-gb", ranks),
        ("flag.kv-offloading-size", 1),
        ("env.VLLM_CPU_KVCACHE_SPACE", ranks if read.is_cpu_build(facts) else 0),
    ):
        if times and (stated := read.amount(facts, key)):
            total += stated[0] * times
            says.append(read.quote(stated[1], f"for each of {times} ranks" if times > 1 else ""))
    weights = least_weights_gib(facts)
    if weights and read.is_cpu_build(facts) and facts.flags_known():
        total += weights[0]
        says.append(read.quote(weights[1]))
    return total, says


def run(context: Context) -> Outcome:
    facts = context.facts
    memory = host_memory(facts)
    if memory is None:
        return CHECK.unknown("platform.ram_gib")
    if runs_in_image(facts):
        return CHECK.unknown("the memory limit of the container")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the weights were loaded")
    total, says = _asked(facts)
    if not says:
        return (
            CHECK.ok("the launch asks for no host memory by a number")
            if facts.flags_known()
            else CHECK.unknown("the launch line")
        )
    if total < memory[0]:
        return CHECK.ok(f"{total:.1f} GiB are asked for, {memory[0]:.1f} GiB can be had")
    limited = memory[1].key == "platform.ram_limit_gib"
    wsl = facts.value("platform.wsl") is True
    fix = [Fix("Ask for less: a smaller offload or cache, or a smaller quantisation.")]
    if limited:
        fix.insert(
            0,
            Fix(
                "Raise the limit of the container (--memory), of the pod (resources.limits.memory) or of the unit (MemoryMax)."
            ),
        )
    elif wsl:
        fix.insert(
            0,
            Fix(
                "Give WSL more: memory= under [wsl2] in %UserProfile%\\.wslconfig, then restart it.",
                "wsl.exe --shutdown",
            ),
        )
    return CHECK.found(
        read.finding(
            "host-memory-too-small",
            f"The launch asks for {total:.0f} GiB of host memory, and {memory[0]:.0f} GiB can be had",
            "oom",
            "error",
            (
                "The control group (container, pod, unit) limits it. "
                if limited
                else "WSL gets about half of the machine's. "
                if wsl
                else ""
            )
            + "The kernel ends the process while it loads, mostly without a word in the log of the engine.",
            [read.quote(memory[1], f">{total:.0f} GiB"), *says],
            fix,
            _SOURCES,
            "inferred",
            explains=["any-host-oom-killed", "host-memory-killed"],
        )
    )


CHECK = Check("host-memory", "Host memory that the launch asks for", run)
