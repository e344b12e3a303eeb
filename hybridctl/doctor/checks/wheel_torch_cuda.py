"""Is the vLLM wheel linked to the CUDA major that torch brings?

The published wheels link to libcudart.so.12 up to 0.19 and to libcudart.so.13 from 0.20 on; uv's ``--torch-backend`` changes torch
only. The library of the other major is then missing when vLLM is imported.
"""

from __future__ import annotations

import re

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome, Severity
from hybridctl.patterns import late

_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/44335",
    "https://discuss.vllm.ai/t/install-using-torch-backend-cu129-but-try-to-import-cu13/2601",
]
_INDEX = ("extra-index-url", "index-url", "index", "default-index", "find-links")
_OWN_BUILD = late(r"\(.*vllm|\bvllm-|fork|custom|patched|source|overlay", re.IGNORECASE)
_CU_TAG = late(r"cu(\d{2})\d\b", re.ASCII)


def _torch_major(facts: Facts) -> tuple[int, Evidence] | None:
    if (stated := read.version(facts, "torch.cuda")) and (low := stated.versions.lowest):
        return low.major, stated.evidence()
    backend = read.flag(facts, "torch-backend")
    if backend and (m := _CU_TAG.fullmatch(str(backend.value).strip())):
        return int(m[1]), read.quote(backend)
    return None


def _wheel_index_majors(facts: Facts) -> set[int]:
    """CUDA majors of vLLM's own wheel folders named on an install line."""
    texts = [str(f.value) for name in _INDEX for f in facts.all(f"flag.{name}")]
    return {int(m[1]) for text in texts if "vllm" in text for m in _CU_TAG.finditer(text)}


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.other_vendor(facts):
        return CHECK.not_applicable("no NVIDIA GPU")
    if read.is_cpu_build(facts):
        return CHECK.not_applicable("vLLM is built for processors")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that vLLM was imported")
    stated = read.version(facts, "vllm.cuda")
    if read.in_container(facts) and stated is None:
        return CHECK.not_applicable("an image may hold another build than the published wheel")
    torch = _torch_major(facts)
    vllm = read.version(facts, "pkg.vllm")
    if torch is None or (vllm is None and stated is None):
        return CHECK.unknown("torch.cuda and pkg.vllm")
    major, says = torch
    if stated and (low := stated.versions.lowest):
        wheel_major, wheel = low.major, stated.evidence(f"CUDA {major}")
    else:
        if (named := facts.get("pkg.vllm")) is not None and _OWN_BUILD.search(str(named.value)):
            return CHECK.unknown("the CUDA of this vLLM: the version names a build of its own")
        release = tables.release(vllm.versions) if vllm else None
        if vllm is None or release is None or release.cuda is None:
            return CHECK.unknown("one vLLM release in pkg.vllm")
        wheel_major, wheel = release.cuda, vllm.evidence(f"its published wheel links to libcudart.so.{release.cuda}")
    if wheel_major == major:
        return CHECK.ok(f"vLLM and torch are both built for CUDA {major}")
    if major in _wheel_index_majors(facts):
        return CHECK.ok("the install line names vLLM's wheels for the CUDA of torch")
    # Wheels for CUDA 13 existed beside the CUDA 12 default before 0.20, and carry the same version number in most listings.
    severity: Severity = "error" if wheel_major > major or stated else "info"
    exact = vllm.versions.exact if vllm else None
    release_text = str(exact) if exact else "VERSION"
    tag = "cu129" if major == 12 else "cu130"
    return CHECK.found(
        read.finding(
            f"cu{wheel_major}-wheel-cu{major}-torch",
            f"vLLM is a CUDA {wheel_major} build, torch a CUDA {major} build",
            "torch-abi",
            severity,
            f"vLLM's extension modules need libcudart.so.{wheel_major}, but torch brings the libraries of CUDA {major}, so "
            f"importing vLLM ends in 'libcudart.so.{wheel_major}: cannot open shared object file'. --torch-backend chooses "
            "torch only, not the vLLM wheel.",
            [wheel, says],
            [
                Fix(
                    f"Take the vLLM wheel for the CUDA of torch ({tag}).",
                    f"uv pip install 'vllm=={release_text}' --torch-backend={tag}"
                    f" --extra-index-url https://wheels.vllm.ai/{release_text}/{tag} --index-strategy unsafe-best-match",
                ),
                Fix(
                    f"Or take torch for CUDA {wheel_major}"
                    + (" (needs driver R580 or newer)." if wheel_major == 13 else "."),
                    f"uv pip install 'vllm=={release_text}' --torch-backend={'cu130' if wheel_major == 13 else 'cu128'}",
                ),
            ],
            _SOURCES,
            "reporter-confirmed",
            explains=["libcudart13-missing", "libcudart12-missing"],
        )
    )


CHECK = Check("wheel-torch-cuda", "CUDA major of the vLLM wheel against that of torch", run, phase="import")
