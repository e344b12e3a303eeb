"""Does MIG leave what the launch asks for? A divided GPU is several small ones, and a launch over several of them rarely works."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import is_for_gpu
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.findings import Fix, Outcome

_GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html"
_START = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html"
_NCCL = "https://github.com/NVIDIA/nccl/issues/1716"


def run(context: Context) -> Outcome:
    facts = context.facts
    if is_for_gpu(facts) is False:
        return CHECK.not_applicable("nothing here is built for NVIDIA's GPUs")
    mig, devices = facts.get("gpu.mig"), facts.get("gpu.mig_devices")
    if mig is None or not isinstance(mig.value, bool):
        return CHECK.unknown("gpu.mig")
    if not mig.value:
        return CHECK.ok("MIG is off")
    if devices is not None and devices.value == []:
        return CHECK.found(
            read.finding(
                "mig-without-instance",
                "MIG is on and no instance has been made",
                "driver-cuda",
                "error",
                "With MIG on, CUDA works on instances only. There is none, so a process sees no GPU. A reboot loses them.",
                [read.quote(mig, "false"), read.quote(devices, "at least one")],
                [
                    Fix("Make one of the whole GPU.", "sudo nvidia-smi mig -cgi 0 -C"),
                    Fix("Or switch MIG off.", "sudo nvidia-smi -mig 0"),
                ],
                [_START],
                "maintainer-confirmed",
                explains=["no-cuda-device-visible", "gpu-busy-exclusive"],
            )
        )
    ranks = layout(facts)
    if ranks.world is None or ranks.tp is None:
        return CHECK.unknown("the launch line")
    if ranks.world == 1:
        return CHECK.ok("MIG is on, and one instance is asked for")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that every rank loaded its weights")
    driver = read.version(facts, "driver.version")
    # Up to R565 a process gets one MIG device however many there are; later drivers show one of each GPU instance.
    single = driver.within("<570") if driver else None
    parts = [q.evidence for q in (ranks.tp, ranks.pp, ranks.dp) if q and q.value > 1]
    return CHECK.found(
        read.finding(
            "mig-with-several-ranks",
            f"The launch asks for {ranks.world} GPUs, and MIG is on",
            "parallelism",
            "error" if single else "warning",
            ("This driver shows a process one MIG device, however many there are. " if single else "")
            + "MIG devices can't read each other's memory, neither over NVLink nor over PCIe, and NCCL supports them only as an "
            "experiment. One instance of the right size, or the whole GPU, is faster than several small ones.",
            [read.quote(mig, "false"), *([driver.evidence(">=570")] if driver and single else []), *parts],
            [
                Fix("Switch MIG off and use the whole GPUs.", "sudo nvidia-smi -mig 0"),
                Fix(
                    "Or serve on one instance.",
                    f"vllm serve {facts.value('model.name') or 'MODEL'} --tensor-parallel-size 1",
                ),
            ],
            [_GUIDE, _NCCL, "https://github.com/vllm-project/vllm/issues/6551"],
            "maintainer-confirmed",
            explains=["more-ranks-than-gpus", "nccl-duplicate-gpu", "invalid-device-ordinal"],
        )
    )


CHECK = Check("mig", "MIG against the number of ranks", run, phase="config")
