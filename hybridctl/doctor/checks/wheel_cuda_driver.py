"""Does the driver serve the CUDA major that torch or the vLLM wheel is built for?

Minor-version compatibility lets a 12.9 build run on a 12.2 driver, but never crosses a major: CUDA 13 needs R580.
"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome, Severity

_SOURCES = [
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    "https://github.com/modelscope/FunASR/issues/2973",
]


def _built_for(facts: Facts) -> tuple[int, Evidence, Severity] | None:
    """CUDA major of what will initialise CUDA, what says so, and how loud a finding on it may be."""
    for key in ("torch.cuda", "vllm.cuda"):
        if (stated := read.version(facts, key)) and (low := stated.versions.lowest):
            return low.major, stated.evidence(), "error"
    if (vllm := read.version(facts, "pkg.vllm")) and (release := tables.release(vllm.versions)) and release.cuda:
        return release.cuda, vllm.evidence(f"its published wheel is built for CUDA {release.cuda}"), "warning"
    return None


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("no NVIDIA GPU")
    if read.is_cpu_build(facts):
        return CHECK.not_applicable("vLLM is built for processors")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that CUDA was initialised")
    built = _built_for(facts)
    if built is None:
        return CHECK.unknown("torch.cuda, vllm.cuda or pkg.vllm")
    major, says, severity = built
    if facts.value("env.VLLM_ENABLE_CUDA_COMPATIBILITY") in ("1", 1, True) and not read.is_consumer_gpu(facts):
        return CHECK.not_applicable("a compatibility package stands in for the driver")
    if major < 12:
        return CHECK.not_applicable(f"built for CUDA {major}")
    serves, evidence = read.driver_serves(facts, f">={major}.0")
    if serves is None:
        return CHECK.unknown("driver.version or driver.cuda, in agreement")
    if serves:
        return CHECK.ok(f"built for CUDA {major}, and the driver serves it")
    if read.in_container(facts) and not read.is_consumer_gpu(facts):
        severity = "warning"  # a compatibility package in the image may stand in for the driver
    need = tables.driver_for_cuda(f"{major}.0", read.is_windows_driver(facts))
    vllm = read.version(facts, "pkg.vllm")
    release = str(vllm.versions.exact) if vllm and vllm.versions.exact else "VERSION"
    fix = [Fix(f"Install driver {need} or newer (branch R{(need or '580').split('.')[0]}).", None)]
    if major == 13:
        fix.append(
            Fix(
                "Or stay on CUDA 12: the cu129 wheel of vLLM together with torch for cu129.",
                f"uv pip install 'vllm=={release}' --torch-backend=cu129"
                f" --extra-index-url https://wheels.vllm.ai/{release}/cu129 --index-strategy unsafe-best-match",
            )
        )
        fix.append(
            Fix("Or the last release whose published wheel is a CUDA 12 build.", "uv pip install 'vllm==0.19.1'")
        )
    return CHECK.found(
        read.finding(
            "cu13-torch-on-cu12-driver" if major == 13 and severity == "error" else "driver-older-than-cuda-major",
            f"The driver is too old for a CUDA {major} build",
            "driver-cuda",
            severity,
            f"What is installed is built for CUDA {major}. A driver runs builds of its own CUDA major only, whatever the minor "
            f"version, so CUDA can't be initialised until the driver is {need} or newer. Containers share the host's driver.",
            [says, *evidence],
            fix,
            _SOURCES,
            "maintainer-confirmed",
            explains=["driver-too-old-cu13", "driver-too-old-cu12", "ptx-newer-than-driver"],
        )
    )


CHECK = Check("wheel-cuda-driver", "CUDA major of the installed wheels against the driver", run, phase="import")
