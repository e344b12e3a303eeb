"""Do the torch and vLLM wheels hold code for this GPU at all?"""

from __future__ import annotations

from packaging.version import Version

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome

_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/16901",
    "https://github.com/vllm-project/vllm/issues/18995",
    "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/",
    "https://github.com/pytorch/pytorch/issues/172352",
    "https://github.com/pytorch/pytorch/releases/tag/v2.8.0",
]
# The first CUDA toolkit that can compile for an architecture; a torch built with an older one has no code for it.
_FIRST_CUDA = {(10, 0): "12.8", (12, 0): "12.8", (12, 1): "12.8", (10, 3): "12.8", (11, 0): "13.0"}


def _torch(facts: Facts, fact: Fact, cc: tuple[int, int]) -> Finding | bool | None:
    cuda = read.version(facts, "torch.cuda")
    if cuda is None or cuda.versions.lowest is None:
        return None
    name = f"sm_{cc[0]}{cc[1]}"
    first = _FIRST_CUDA.get(cc)
    if first and cuda.within(f"<{first}.dev0"):
        return _finding(
            "torch",
            name,
            f"This torch is built with CUDA {cuda.text}, which can't compile for {name}: CUDA {first} is the first that can.",
            [cuda.evidence(f">={first}"), read.quote(fact)],
            [
                Fix(
                    f"Install torch for CUDA {first} or newer (torch 2.7 is the first).",
                    "uv pip install torch --torch-backend=auto",
                )
            ],
        )
    if cc < (7, 5) and cuda.within(">=13"):
        return _finding(
            "torch",
            name,
            f"This torch is built with CUDA {cuda.text}; CUDA 13 dropped everything before Turing, {name} included.",
            [cuda.evidence("<13"), read.quote(fact, ">=7.5")],
            [Fix("Stay on a CUDA 12 build: vLLM 0.19.1 is the last published one.", "uv pip install 'vllm==0.19.1'")],
        )
    torch = read.version(facts, "pkg.torch")
    dropped = torch and ((cc < (7, 0) and torch.within(">=2.8.dev0")) or (cc == (7, 0) and torch.within(">=2.11.dev0")))
    if torch and dropped and cuda.within(">=12.8,<13"):
        return _finding(
            "torch",
            name,
            f"torch {torch.text} for CUDA {cuda.text} is built without {name}: its builds for CUDA 12.8 and newer dropped Maxwell "
            "and Pascal in 2.8 and Volta in 2.11; those for CUDA 12.6 keep them.",
            [torch.evidence(), cuda.evidence("<12.8"), read.quote(fact, ">=7.5")],
            [Fix("Install torch for CUDA 12.6.", "uv pip install torch --torch-backend=cu126")],
        )
    return None if cuda.within(">=12.8") is None else True


def _wheel(facts: Facts, fact: Fact, cc: tuple[int, int]) -> Finding | bool | None:
    vllm = read.version(facts, "pkg.vllm")
    cuda, torch = read.version(facts, "vllm.cuda"), read.version(facts, "torch.cuda")
    release = tables.release(vllm.versions) if vllm else None
    wheel = tables.wheel(vllm.versions) if vllm else None
    if vllm is None or wheel is None or release is None or release.cuda is None or read.in_container(facts):
        return None  # images are built with other lists of architectures
    if vllm.versions.exact is not None and not vllm.is_release:
        return None  # built from source, then as a rule for the GPU at hand
    for build in (cuda, torch):
        if build and build.versions.lowest and build.versions.lowest.major != release.cuda:
            return None  # another build than the published one
    runs = _runs(wheel, cc)
    if runs is not False:
        return runs
    name = f"sm_{cc[0]}{cc[1]}"
    later = cc >= (10, 0)
    return _finding(
        "vllm",
        name,
        f"The published wheel of this vLLM holds neither machine code nor PTX that runs on {name}.",
        [vllm.evidence(">=0.9.2" if later else "<0.20"), read.quote(fact)],
        [
            Fix("Upgrade vLLM: Blackwell is covered from 0.9.2 on.", "uv pip install -U vllm --torch-backend=auto")
            if later
            else Fix("Stay on a CUDA 12 build: vLLM 0.19.1 is the last published one.", "uv pip install 'vllm==0.19.1'")
        ],
    )


def _runs(wheel: tables.Wheel, cc: tuple[int, int]) -> bool | None:
    """Whether the parts that every model needs have code: the core, and FlashAttention 2 where it is used (from Ampere on)."""
    parts = [(wheel.core_cubin, wheel.core_ptx)]
    if cc >= (8, 0):
        parts.append((wheel.fa2_cubin, wheel.fa2_ptx))
    answers: list[bool | None] = []
    for cubin, ptx in parts:
        if cubin is None or ptx is None:
            answers.append(None)
            continue
        native = any(_target(t)[0] == cc[0] and _target(t) <= cc for t in cubin if not t.endswith("a"))
        answers.append(native or any(_target(t) <= cc for t in ptx))
    return False if False in answers else None if None in answers else True


def _target(text: str) -> tuple[int, int]:
    digits = text.rstrip("af")
    return int(digits[:-1]), int(digits[-1])


def _finding(part: str, name: str, cause: str, evidence: list, fix: list[Fix]) -> Finding:  # type: ignore[type-arg]
    return read.finding(
        "volta-needs-cu12-wheel" if part == "vllm" and not name.startswith("sm_1") else f"no-gpu-code-{part}",
        f"The {'torch' if part == 'torch' else 'vLLM'} build has no code for {name}",
        "driver-cuda",
        "error",
        f"{cause} The first kernel ends in 'no kernel image is available for execution on the device'.",
        evidence,
        fix,
        _SOURCES,
        "measured",
        explains=["no-kernel-image-blackwell", "no-kernel-image-old-gpu", "no-kernel-image-other-gpu"],
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("no NVIDIA GPU")
    if read.is_cpu_build(facts):
        return CHECK.not_applicable("vLLM is built for processors")
    gpu = read.capability(facts)
    if gpu is None:
        return CHECK.unknown("gpu.cc")
    if read.past(facts, "profile"):
        return CHECK.not_applicable("the log shows kernels that ran")
    if gpu[1] in ((7, 2), (8, 7)):
        return CHECK.not_applicable("Jetson has builds of its own")
    results = [_torch(facts, *gpu), _wheel(facts, *gpu)]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True not in results:
        return CHECK.unknown("torch.cuda, or one vLLM release in pkg.vllm")
    return CHECK.ok(f"there is code for compute capability {Version('.'.join(map(str, gpu[1])))}")


CHECK = Check("gpu-code", "GPU code in the wheels", run)
