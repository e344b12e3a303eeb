"""Can the driver compile the PTX in the vLLM wheel, where the GPU has no machine code of its own?

From 0.9.2 on FlashAttention 2 ships machine code and PTX for sm_80 only, so every newer architecture relies on the driver's
compiler, and that refuses PTX newer than itself. Minor-version compatibility does not help here.
"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome, Severity

_SOURCES = [
    "https://github.com/vllm-project/vllm/pull/28305",
    "https://github.com/vllm-project/vllm/issues/31700",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
]


def _isa(facts: Facts) -> tuple[str, Evidence] | None:
    """PTX ISA of the wheel: by the CUDA version it is stated to be built for, else that of the published wheel."""
    vllm = read.version(facts, "pkg.vllm")
    if (stated := read.version(facts, "vllm.cuda")) and (isa := tables.ptx_of_cuda(stated.versions)):
        return isa, stated.evidence(f"writes PTX {isa}")
    wheel = tables.wheel(vllm.versions) if vllm else None
    release = tables.release(vllm.versions) if vllm else None
    if vllm is None or wheel is None or release is None or not wheel.ptx_isa:
        return None
    torch = read.version(facts, "torch.cuda")
    if torch and torch.versions.lowest and release.cuda and torch.versions.lowest.major != release.cuda:
        return None  # another build than the published one
    return wheel.ptx_isa, vllm.evidence(f"its published wheel holds PTX {wheel.ptx_isa}")


def _loudness(facts: Facts, cc: tuple[int, int]) -> Severity:
    if cc[0] == 12:  # FlashAttention 2 is the default there, so no start gets round it
        return "warning" if read.in_container(facts) and not read.is_consumer_gpu(facts) else "error"
    return (
        "warning" if cc[0] == 10 else "info"
    )  # sm_90 uses FlashAttention 3; only some models reach a kernel without code


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("no NVIDIA GPU")
    if read.is_cpu_build(facts):
        return CHECK.not_applicable("vLLM is built for processors")
    gpu = read.capability(facts)
    if gpu is None:
        return CHECK.unknown("gpu.cc")
    fact, cc = gpu
    if cc < (9, 0):
        return CHECK.not_applicable("the wheels hold machine code that runs on this GPU")
    if read.past(facts, "capture"):
        return CHECK.not_applicable("the log shows that the kernels were compiled")
    isa = _isa(facts)
    if isa is None:
        return CHECK.unknown("one vLLM release in pkg.vllm, or vllm.cuda")
    cuda = tables.cuda_of_ptx(isa[0])
    serves, evidence = read.driver_serves(facts, f">={cuda}")
    if serves is None:
        return CHECK.unknown("driver.version or driver.cuda, in agreement")
    if serves:
        return CHECK.ok(f"PTX {isa[0]} needs CUDA {cuda}, and the driver serves it")
    if facts.value("env.VLLM_ENABLE_CUDA_COMPATIBILITY") in ("1", 1, True) and not read.is_consumer_gpu(facts):
        return CHECK.not_applicable("a compatibility package stands in for the driver's compiler")
    severity = _loudness(facts, cc)
    need = tables.driver_for_cuda(str(cuda), read.is_windows_driver(facts))
    fix = [Fix(f"Install driver {need} or newer.", None)]
    if not read.is_consumer_gpu(facts):
        fix.append(
            Fix(
                "On a data-centre GPU with the cuda-compat package installed, let vLLM load it first.",
                "export VLLM_ENABLE_CUDA_COMPATIBILITY=1",
            )
        )
    return CHECK.found(
        read.finding(
            "wheel-ptx-newer-than-driver",
            f"The wheel's PTX {isa[0]} is newer than the driver's compiler",
            "driver-cuda",
            severity,
            f"Part of vLLM's kernels, FlashAttention 2 above all, has no machine code for sm_{cc[0]}{cc[1]} and is compiled by the "
            f"driver from PTX {isa[0]}. That needs a driver for CUDA {cuda} ({need}); an older one stops with 'the provided "
            "PTX was compiled with an unsupported toolchain'. Models that reach no such kernel run all the same.",
            [isa[1], read.quote(fact, "sm_80 for the machine code of FlashAttention 2"), *evidence],
            fix,
            _SOURCES,
            "maintainer-confirmed",
            explains=["ptx-newer-than-driver"],
        )
    )


CHECK = Check("ptx-driver", "PTX of the wheel against the driver's compiler", run)
