"""Does the driver compile the PTX that the machine's CUDA toolkit writes?

A driver compiles PTX up to the ISA of its own CUDA version. Minor-version compatibility is about machine code: a newer toolkit's
PTX is refused (error 222, "unsupported toolchain"). Wheels bring code of their own, so this is about kernels compiled here.
"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Fix, Outcome, Severity
from hybridctl.versions import parse_condition

_SOURCES = [
    "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    "https://github.com/vllm-project/vllm/pull/28305",
]


def _own_ptx(facts: Facts) -> str:
    """What the driver itself compiles, as a sentence; empty where its number does not tell."""
    driver = read.version(facts, "driver.version")
    served = tables.cuda_of_driver(driver.versions) if driver else None
    row = next((c for c in tables.cudas() if served and served.within(parse_condition(f"=={c.version}"))), None)
    return f" This driver's own is PTX {row.ptx} (CUDA {row.version})." if row else ""


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("no NVIDIA GPU")
    toolkit = read.version(facts, "cuda.toolkit")
    isa = tables.ptx_of_cuda(toolkit.versions) if toolkit else None
    if toolkit is None or isa is None:
        return CHECK.unknown("cuda.toolkit, as one release of the table")
    if read.in_container(facts) and not read.is_consumer_gpu(facts):
        return CHECK.not_applicable("a compatibility package in the image may stand in for the driver's compiler")
    cuda = tables.cuda_of_ptx(isa)
    serves, evidence = read.driver_serves(facts, f">={cuda}")
    if serves is None:
        return CHECK.unknown("driver.version or driver.cuda, in agreement")
    if serves:
        return CHECK.ok(f"CUDA {toolkit.text} writes PTX {isa}, and the driver compiles it")
    need = tables.driver_for_cuda(str(cuda), read.is_windows_driver(facts))
    # pycuda is there to load kernels of one's own; who has none meets this never.
    loads = facts.get("pkg.pycuda")
    severity: Severity = "warning" if loads else "info"
    return CHECK.found(
        read.finding(
            "toolkit-ptx-newer-than-driver",
            f"CUDA {toolkit.text} writes PTX {isa}, which this driver can't compile",
            "driver-cuda",
            severity,
            f"nvcc of CUDA {toolkit.text} writes PTX {isa}; a driver compiles PTX up to its own version, and every driver of one "
            f"branch has the same.{_own_ptx(facts)} Loading such PTX (cuModuleLoadDataEx) ends in error 222, 'unsupported "
            "toolchain'. Machine code (cubin) of the same toolkit does load, within one CUDA major.",
            [toolkit.evidence(f"writes PTX {isa}"), *evidence, *([read.quote(loads)] if loads else [])],
            [
                Fix(f"Install driver {need} or newer."),
                Fix("Or compile to machine code for the GPU at hand.", "nvcc -cubin -arch=native kernel.cu"),
            ],
            _SOURCES,
            "maintainer-confirmed",
            explains=["ptx-newer-than-driver"],
        )
    )


CHECK = Check("toolkit-ptx", "PTX of the CUDA toolkit against the driver's compiler", run, phase="profile")
