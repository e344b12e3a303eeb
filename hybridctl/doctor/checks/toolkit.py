"""Is the CUDA toolkit that a build would take whole, and of torch's CUDA? FlashInfer and source packages compile with it."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import is_for_gpu, runs_in_image
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome, Severity

_BUILDER = "https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py"
_COMPILES = ("pkg.flashinfer-python", "pkg.deep-gemm", "pkg.tilelang")


def _jit(facts: Facts) -> list[Evidence]:
    """Installed packages that compile at run time."""
    return [read.quote(fact) for key in _COMPILES if (fact := facts.get(key))]


def _whole(facts: Facts) -> Finding | bool | None:
    nvcc, headers, home = facts.get("cuda.nvcc"), facts.get("cuda.headers"), facts.get("cuda.home")
    if nvcc is None:
        return None
    jit, named = _jit(facts), facts.get("env.CUDA_HOME") or facts.get("env.CUDA_PATH")
    if not jit and not named:
        return True  # wheels need no toolkit
    if nvcc.value == "not found":
        severity: Severity = "warning" if named else "info"
        return read.finding(
            "cuda-home-not-set",
            "CUDA_HOME names no toolkit" if named else "No CUDA compiler on this machine",
            "kernel-compile",
            severity,
            "Nothing here compiles CUDA: packages that compile at run time (FlashInfer, DeepGEMM, TileLang) or from source end at "
            "their first kernel. What comes ready-made in wheels, and Triton, does not need it.",
            [read.quote(nvcc, "nvcc"), *([read.quote(named)] if named else []), *jit],
            [
                Fix(
                    "Install a toolkit of torch's CUDA and name it.",
                    "export CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH",
                ),
                Fix(
                    "Or install ready-made kernels: flashinfer-cubin and flashinfer-jit-cache of FlashInfer's version."
                ),
            ],
            [_BUILDER, "https://github.com/vllm-project/vllm/issues/49497"],
            "maintainer-confirmed",
        )
    if headers is None or headers.value is not False or home is None:
        return True
    return read.finding(
        "cuda-home-without-headers",
        f"Builds would take {home.value} for the CUDA toolkit, and its headers are not there",
        "kernel-compile",
        "warning" if jit else "info",
        "torch and FlashInfer take the folder around the nvcc that PATH finds first, unless CUDA_HOME names one. Here that nvcc is "
        "a link or a script away from its toolkit, or only the compiler was installed: a build ends at 'cuda_runtime.h: No such "
        "file'.",
        [read.quote(home), read.quote(headers, "cuda_runtime.h"), *jit],
        [Fix("Name the toolkit itself.", f"export CUDA_HOME={_other(facts) or '/usr/local/cuda'}")],
        [_BUILDER],
        "measured",
        explains=["cuda-header-missing"],
    )


def _other(facts: Facts) -> str | None:
    """A toolkit on disk, the newest."""
    listed = facts.value("cuda.toolkits")
    return listed[-1].partition(" ")[2] if isinstance(listed, list) and listed else None


def _same_major(facts: Facts) -> Finding | bool | None:
    toolkit, torch = read.version(facts, "cuda.toolkit"), read.version(facts, "torch.cuda")
    if toolkit is None or torch is None or toolkit.versions.lowest is None or torch.versions.lowest is None:
        return None
    have, want = toolkit.versions.lowest.major, torch.versions.lowest.major
    if have == want or not _jit(facts):
        return True
    listed = facts.value("cuda.toolkits")
    fitting = [t for t in listed if t.startswith(f"{want}.")] if isinstance(listed, list) else []
    home = fitting[-1].partition(" ")[2] if fitting else f"/usr/local/cuda-{torch.text.partition('+')[0]}"
    return read.finding(
        "build-cuda-mismatch",
        f"CUDA toolkit {toolkit.text} beside a torch for CUDA {torch.text}",
        "kernel-compile",
        "info",
        "Extensions that are compiled here (causal-conv1d, mamba-ssm, flash-attn, vLLM from source) are refused by torch, since "
        "the toolkit is of another CUDA major. Wheels are not affected.",
        [toolkit.evidence(f"{want}.*"), torch.evidence()],
        [Fix(f"For a build, name a toolkit of CUDA {want}.", f"export CUDA_HOME={home} PATH={home}/bin:$PATH")],
        [_BUILDER, "https://github.com/state-spaces/mamba/issues/772"],
        "maintainer-confirmed",
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    for_gpu = is_for_gpu(facts)
    if for_gpu is False:
        return CHECK.not_applicable("this torch is not built for CUDA")
    if runs_in_image(facts):
        return CHECK.not_applicable("the image has a toolkit of its own, or none")
    if for_gpu is None:
        return CHECK.unknown("torch.build")
    if read.past(facts, "profile"):
        return CHECK.not_applicable("the log shows kernels that were compiled")
    results = [_whole(facts), _same_major(facts)]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok(f"CUDA toolkit {facts.value('cuda.toolkit') or ''} in {facts.value('cuda.home')}")
    return CHECK.unknown("cuda.nvcc of this machine, or cuda.toolkit")


CHECK = Check("toolkit", "CUDA toolkit for builds", run, phase="profile")
