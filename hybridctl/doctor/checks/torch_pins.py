"""Are torch and what is compiled against it the ones that this vLLM release was built with?

vLLM's extension modules are tied to one torch minor release, torchvision to one torch, and two CUDA majors of one NVIDIA library
overwrite each other's files. Builds of one's own, images and nightlies are tied otherwise, so they raise nothing.
"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome, Severity

_SOURCES = [
    "https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html",
    "https://github.com/pytorch/vision#installation",
]
# Libraries whose cu12 and cu13 distributions unpack into the same folder, so that the one installed last wins.
_SHARED_FOLDER = ("nvidia-nccl", "nvidia-cudnn", "nvidia-cusparselt", "nvidia-nvshmem")


def _minor(reading: Reading) -> tuple[int, ...] | None:
    exact = reading.versions.exact
    return None if exact is None or exact.is_prerelease else exact.release[:2]


def _own_build(facts: Facts) -> bool:
    """Whether the packages probably come from elsewhere than the package index: images, aarch64 boards, Windows forks."""
    foreign_windows = facts.value("platform.os") == "windows" and facts.value("platform.wsl") is not True
    return read.in_container(facts) or foreign_windows or facts.value("platform.arch") == "aarch64"


def _torch(facts: Facts, vllm: Reading, torch: Reading) -> Finding | bool | None:
    release = tables.release(vllm.versions)
    pin = tables.version_of(release.torch) if release else None
    if not vllm.is_release or pin is None or pin.exact is None or (have := _minor(torch)) is None:
        return None
    if have == pin.exact.release[:2]:
        return True
    severity: Severity = "info" if _own_build(facts) else "error"
    return read.finding(
        "torch-not-the-pinned-one",
        f"vLLM {vllm.versions.exact} is built for torch {pin.text}",
        "torch-abi",
        severity,
        f"The wheel's extension modules are compiled against torch {pin.text}. With torch {torch.text} their import usually "
        "ends in 'undefined symbol', or operators are missing; vLLM is tested with the pinned one only.",
        [torch.evidence(f"=={pin.text}"), vllm.evidence()],
        [
            Fix(
                "Install vLLM and let it bring its own torch.",
                f"uv pip install 'vllm=={vllm.versions.exact}' --torch-backend=auto",
            ),
            Fix(
                "Or rebuild vLLM against the torch that is installed, without build isolation.",
                "python use_existing_torch.py && uv pip install --no-build-isolation -e .",
            ),
        ],
        _SOURCES,
        "measured",
        explains=["torch-abi-undefined-symbol"],
    )


def _torchvision(facts: Facts, torch: Reading, vision: Reading) -> Finding | bool | None:
    row = tables.torch(torch.versions)
    pair = tables.version_of(row.torchvision) if row else None
    have = _minor(vision)
    if pair is None or pair.exact is None or have is None or _minor(torch) is None:
        return None
    cuda = [r.versions.local for r in (torch, vision)]
    majors = {c[:4] for c in cuda if c and c.startswith("cu")}
    if have == pair.exact.release[:2] and len(majors) < 2:
        return True
    severity: Severity = "info" if _own_build(facts) else "error"
    return read.finding(
        "torchvision-for-another-torch",
        f"torchvision {vision.text} does not belong to torch {torch.text}",
        "torch-abi",
        severity,
        f"torchvision registers its operators with the torch that it was built for (torch {torch.versions.exact} pairs with "
        f"{pair.text}); with another one 'operator torchvision::nms does not exist' or a CUDA mismatch ends the import.",
        [vision.evidence(f"=={pair.text}"), torch.evidence()],
        [
            Fix(
                "Install the pair together.",
                f"uv pip install 'torch=={torch.versions.exact}' 'torchvision=={pair.text}' --torch-backend=auto",
            )
        ],
        _SOURCES,
        "inferred",
        explains=["torchvision-ops-missing"],
    )


def _of_vllm(
    facts: Facts, vllm: Reading, name: str, part: Reading, torch_finding: Finding | bool | None
) -> Finding | bool | None:
    """torchvision or Triton of a set that pip is to install, against what follows from vLLM's own pins."""
    release = tables.release(vllm.versions)
    pin = tables.version_of(getattr(release, name)) if release else None
    have = _minor(part)
    if pin is None or pin.lowest is None or have is None or not read.is_proposed(facts, part.fact):
        return None
    if have == pin.lowest.release[:2]:
        return True
    torch = release.torch if release else ""
    why = (
        f"vLLM {vllm.text} pins torchvision {pin.text}"
        if name == "torchvision"
        else f"vLLM {vllm.text} pins torch {torch}, and that pins Triton {pin.text}"
    )
    found = read.finding(
        f"{name}-not-vllms",
        f"{name} {part.text} does not go with vLLM {vllm.text}",
        "torch-abi",
        "error",
        f"{why}. pip finds no set that holds both and ends in 'ResolutionImpossible'; forced together, they don't load.",
        [part.evidence(pin.text), vllm.evidence()],
        [
            Fix(
                "Leave it out: vLLM brings the one that it was built with.",
                f"python -m pip install 'vllm=={vllm.text}'",
            )
        ],
        tables.sources("vllm"),
        "measured",
    )
    # They came with the other torch: put right, it brings them along.
    found.explained_by = torch_finding.id if isinstance(torch_finding, Finding) else None
    return found


def _triton(torch: Reading, triton: Reading) -> Finding | bool | None:
    row = tables.torch(torch.versions)
    pin = tables.version_of(row.triton) if row else None
    have = _minor(triton)
    if pin is None or have is None or (torch.versions.local or "").startswith(("cpu", "xpu")):
        return None  # those builds of torch pin no Triton
    lowest = pin.lowest
    if lowest is None or have == lowest.release[:2]:
        return True
    return read.finding(
        "triton-not-the-pinned-one",
        f"Triton {triton.text} is not the one that torch {torch.text} pins",
        "torch-abi",
        "info",
        "torch and Triton are released as a pair. Another Triton usually works and sometimes does not; put the pair back "
        "before you look elsewhere.",
        [triton.evidence(pin.text), torch.evidence()],
        [
            Fix(
                "Reinstall the Triton that torch pins.",
                f"uv pip install 'triton{pin.text if pin.text[:1] in '~<>=' else '==' + pin.text}'",
            )
        ],
        ["https://github.com/vllm-project/vllm/issues/20748"],
        "unresolved",
    )


def _two_majors(facts: Facts) -> Finding | None:
    for base in _SHARED_FOLDER:
        older, newer = facts.get(f"pkg.{base}-cu12"), facts.get(f"pkg.{base}-cu13")
        if older is None or newer is None:
            continue
        severity: Severity = "info" if read.in_container(facts) or read.past(facts, "import") else "warning"
        return read.finding(
            "two-cuda-majors",
            "Libraries of two CUDA majors share one folder",
            "torch-abi",
            severity,
            f"{base}-cu12 and {base}-cu13 unpack into the same folder of site-packages, so the one installed last has overwritten "
            "the other, and torch may load a library of the wrong major. Upgrading vLLM over a CUDA 12 environment does this.",
            [read.quote(older, "only one of the two"), read.quote(newer)],
            [
                Fix(
                    "Start from a fresh environment.",
                    "uv venv --python 3.12 && uv pip install vllm --torch-backend=auto",
                )
            ],
            ["https://github.com/vllm-project/vllm/issues/36099", "https://github.com/vllm-project/vllm/issues/52300"],
            "reporter-confirmed",
        )
    return None


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("builds for other GPUs are pinned otherwise")
    results: list[Finding | bool | None] = [_two_majors(facts)]
    torch = read.version(facts, "pkg.torch")
    pairs = [(key, read.version(facts, f"pkg.{key}")) for key in ("vllm", "torchvision", "triton")]
    if torch and not read.past(facts, "import"):
        by_key = {key: reading for key, reading in pairs if reading}
        if vllm := by_key.get("vllm"):
            results.append(wrong := _torch(facts, vllm, torch))
            results += [_of_vllm(facts, vllm, k, by_key[k], wrong) for k in ("torchvision", "triton") if k in by_key]
        if vision := by_key.get("torchvision"):
            results.append(_torchvision(facts, torch, vision))
        if triton := by_key.get("triton"):
            results.append(_triton(torch, triton))
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok("torch and what is built against it belong together")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that vLLM was imported")
    return CHECK.unknown("pkg.torch with pkg.vllm, pkg.torchvision or pkg.triton, each one release")


CHECK = Check("torch-pins", "torch and what is compiled against it", run, phase="import")
