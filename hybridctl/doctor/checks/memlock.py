"""May NCCL lock as much memory as InfiniBand needs?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import runs_in_image
from hybridctl.doctor.findings import Fix, Outcome

_ENOUGH_GIB = 1.0
"""Far above the defaults of 64 KiB and 8 MiB, far below what people set who set it."""
_SOURCES = [
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    "https://github.com/NVIDIA/nccl-tests/issues/206",
]


def run(context: Context) -> Outcome:
    facts = context.facts
    locked = facts.get("platform.memlock_gib")
    if locked is None or isinstance(locked.value, bool) or not isinstance(locked.value, (int, float)):
        return CHECK.unknown("platform.memlock_gib of this machine")
    if locked.value >= _ENOUGH_GIB:
        return CHECK.ok("memory may be locked")
    held = facts.value("platform.capabilities")
    if isinstance(held, list) and "ipc_lock" in held and not runs_in_image(facts):
        return CHECK.ok("the capability ipc_lock lifts the limit")
    adapters = facts.get("platform.infiniband")
    if adapters is None:
        return CHECK.not_applicable("no InfiniBand or RoCE adapter")
    if runs_in_image(facts):
        return CHECK.unknown("the limit inside the container")
    machines = read.flag(facts, "nnodes", "node-rank", "dist-init-addr", "data-parallel-address", "ray-address")
    backend = read.flag(facts, "distributed-executor-backend")
    across = machines or (backend if backend and str(backend.value).lower() == "ray" else None)
    if across is None:
        return CHECK.not_applicable("one machine: NCCL goes through NVLink, PCIe and /dev/shm")
    return CHECK.found(
        read.finding(
            "memlock-too-small-for-infiniband",
            "The limit on locked memory is too small for InfiniBand",
            "nccl-shm",
            "warning",
            "NCCL registers its buffers with the adapter, which locks them in memory. At this limit that fails: 'Call to "
            "ibv_reg_mr failed with error Cannot allocate memory'.",
            [read.quote(locked, "unlimited"), read.quote(adapters), read.quote(across)],
            [
                Fix(
                    "In a container: lift it at the start.",
                    "docker run --ulimit memlock=-1 --gpus all --ipc=host IMAGE",
                ),
                Fix(
                    "On the machine: for all users, then log in again.",
                    "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf",
                ),
                Fix("Or do without InfiniBand.", "export NCCL_IB_DISABLE=1"),
            ],
            _SOURCES,
            "maintainer-confirmed",
            explains=["nccl-ib-transport-failed", "nccl-system-error"],
        )
    )


CHECK = Check("memlock", "Locked memory for InfiniBand", run, phase="load")
