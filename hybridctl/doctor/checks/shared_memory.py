"""Is /dev/shm of the container large enough for several ranks? Docker gives 64 MiB unless it is told otherwise."""

from __future__ import annotations

import re

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome, Severity
from hybridctl.patterns import late

_SIZE = late(r"(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 2**-30, "b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0}
_ENOUGH_GIB = 0.5
_SOURCES = ["https://github.com/vllm-project/vllm/issues/1710", "https://github.com/NVIDIA/nccl/issues/342"]


def _size_gib(text: str) -> float | None:
    """``--shm-size`` in GiB; Docker reads a bare number as bytes."""
    m = _SIZE.fullmatch(text.strip())
    return float(m[1]) * _UNITS[m[2].lower()] if m else None


def _judge(facts: Facts) -> tuple[Severity, Evidence] | bool | None:
    option = facts.get("command.shm")
    if option:
        if str(option.value).strip().lower() == "host":
            return True
        size = _size_gib(str(option.value))
        if size is not None:
            return True if size >= _ENOUGH_GIB else ("warning", read.quote(option, f">={_ENOUGH_GIB} GiB"))
    stated = facts.get("platform.shm_gib")
    if stated and isinstance(stated.value, (int, float)):
        return True if stated.value >= _ENOUGH_GIB else ("warning", read.quote(stated, f">={_ENOUGH_GIB} GiB"))
    if facts.value("command.form") == "docker":
        return "info", Evidence("command.shm", "neither --ipc=host nor --shm-size", "--ipc=host", "command", "")
    return None


def run(context: Context) -> Outcome:
    facts = context.facts
    ranks = layout(facts)
    several = [q for q in (ranks.tp, ranks.pp) if q and q.value > 1]
    if not several:
        known = ranks.tp is not None and ranks.pp is not None
        return CHECK.not_applicable("one rank") if known else CHECK.unknown("flag.tensor-parallel-size")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the ranks found each other")
    judged = _judge(facts)
    if judged is None:
        return CHECK.unknown("platform.shm_gib or command.shm")
    if judged is True or judged is False:
        return CHECK.ok("/dev/shm is large enough, or that of the host")
    severity, says = judged
    return CHECK.found(
        read.finding(
            "shm-small-for-ranks",
            "/dev/shm is small for several ranks",
            "nccl-shm",
            severity,
            "Several ranks exchange data through /dev/shm; NCCL and the message queues take hundreds of MiB, and a container gets "
            "64 MiB by default.",
            [says, *(q.evidence for q in several)],
            [
                Fix(
                    "Share the host's segment, or ask for a larger one: --ipc=host or --shm-size=8g; in a compose file "
                    "ipc: host or shm_size: 8gb.",
                    f"docker run --gpus all --ipc=host vllm/vllm-openai:latest --model {facts.value('model.name') or 'MODEL'}"
                    f" --tensor-parallel-size {several[0].value}",
                )
            ],
            _SOURCES,
            "maintainer-confirmed",
            explains=["nccl-shm-too-small", "nccl-unhandled-system-error"] if severity == "warning" else [],
        )
    )


CHECK = Check("shared-memory", "/dev/shm against the number of ranks", run)
