"""Does the assembler inside Triton know this GPU?

Triton brings its own ptxas. Those of Triton 3.4 and 3.5 know sm_100, sm_101 and sm_120, but not sm_103, sm_110 or sm_121.
"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome


def _triton(facts: Facts) -> tuple[tables.Triton, Evidence] | None:
    for key in ("pkg.triton", "pkg.pytorch-triton"):
        if (stated := read.version(facts, key)) and (row := tables.triton(stated.versions)):
            return row, stated.evidence()
    torch = read.version(facts, "pkg.torch")
    pinned = tables.torch(torch.versions) if torch else None
    triton = tables.triton(tables.version_of(pinned.triton)) if pinned else None
    return (triton, torch.evidence(f"pins Triton {pinned.triton}")) if triton and torch and pinned else None


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("no NVIDIA GPU")
    if facts.value("torch.build") in ("cpu", "xpu"):
        return CHECK.not_applicable("this torch compiles no kernels for CUDA")
    gpu = read.capability(facts)
    if gpu is None:
        return CHECK.unknown("gpu.cc")
    fact, cc = gpu
    if cc < (10, 0):
        return CHECK.not_applicable("every Triton of these years knows this GPU")
    if facts.get("env.TRITON_PTXAS_PATH") or facts.get("env.TRITON_PTXAS_BLACKWELL_PATH"):
        return CHECK.not_applicable("another ptxas is set in the environment")
    if read.past(facts, "capture"):
        return CHECK.not_applicable("the log shows that Triton compiled its kernels")
    if read.in_container(facts):
        return CHECK.not_applicable("images set TRITON_PTXAS_PATH or bring another Triton")
    found = _triton(facts)
    if found is None or found[0].targets is None:
        return CHECK.unknown("one Triton release in pkg.triton or pkg.torch")
    target = f"{cc[0]}{cc[1]}"
    triton, says = found
    if target in found[0].targets:
        return CHECK.ok(f"Triton's ptxas knows sm_{target}")
    newest = triton.ptxas_blackwell or triton.ptxas
    return CHECK.found(
        read.finding(
            "triton-ptxas-unknown-gpu",
            f"Triton's own ptxas does not know sm_{target}",
            "kernel-compile",
            "error",
            f"The ptxas inside this Triton comes from CUDA {newest} and has no target sm_{target}a, so every Triton kernel "
            "(Gated DeltaNet, Mamba, fused experts) fails when it is assembled.",
            [says, read.quote(fact, f"sm_{' sm_'.join(found[0].targets)}" if found[0].targets else "before sm_100")],
            [
                Fix(
                    "Point Triton at the ptxas of CUDA 13.",
                    "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
                ),
                Fix(
                    "Or take a vLLM whose torch brings a newer Triton (sm_121: Triton 3.6; sm_110: 3.7).",
                    "uv pip install -U vllm --torch-backend=auto",
                ),
            ],
            tables.sources("triton"),
            "maintainer-confirmed",
            explains=["ptxas-unknown-gpu", "ptxas-failed-on-new-gpu"],
        )
    )


CHECK = Check("triton-ptxas", "Triton's assembler against the GPU", run)
