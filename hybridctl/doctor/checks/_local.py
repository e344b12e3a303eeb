"""What checks of this machine share."""

from __future__ import annotations

from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts


def runs_in_image(facts: Facts) -> bool:
    """Whether the launch line starts a container: Python, compilers and variables of this machine are not those of the engine."""
    return facts.value("command.form") in ("docker", "compose", "kubernetes") or facts.get("command.image") is not None


def is_for_gpu(facts: Facts) -> bool | None:
    """Whether torch or vLLM here is built for NVIDIA's GPUs; ``None`` where neither is known."""
    build = facts.value("torch.build")
    if read.is_cpu_build(facts) or (isinstance(build, str) and build != "cuda"):
        return False
    return True if build == "cuda" or facts.get("vllm.cuda") else None


def host_memory(facts: Facts) -> tuple[float, Fact] | None:
    """Memory that a process here can have in GiB: that of the machine, or less where a control group limits it."""
    found = [amount for key in ("platform.ram_gib", "platform.ram_limit_gib") if (amount := read.amount(facts, key))]
    return min(found, key=lambda pair: pair[0], default=None)
