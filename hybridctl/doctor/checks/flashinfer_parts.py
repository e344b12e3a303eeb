"""Do the parts of FlashInfer have one version, and is it the one that vLLM pins?

FlashInfer compares flashinfer-python with flashinfer-cubin and flashinfer-jit-cache when it is imported, and refuses a difference.
"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Fix, Outcome

_PARTS = ("flashinfer-cubin", "flashinfer-jit-cache")
_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/49804",
    "https://github.com/flashinfer-ai/flashinfer/issues/4781",
]


def run(context: Context) -> Outcome:
    facts = context.facts
    main = read.version(facts, "pkg.flashinfer-python")
    if main is None or main.versions.exact is None:
        return CHECK.unknown("pkg.flashinfer-python")
    if facts.value("env.FLASHINFER_DISABLE_VERSION_CHECK") in ("1", 1, True):
        return CHECK.not_applicable("FlashInfer's own comparison is switched off")
    if read.past(facts, "capture"):
        return CHECK.not_applicable("the log shows that FlashInfer was imported")
    for name in _PARTS:
        part = read.version(facts, f"pkg.{name}")
        if part and part.versions.exact and part.versions.exact != main.versions.exact:
            return CHECK.found(
                read.finding(
                    "flashinfer-parts-differ",
                    f"{name} and flashinfer-python have different versions",
                    "torch-abi",
                    "error",
                    f"FlashInfer refuses to be imported when {name} has another version. It is left behind when vLLM is upgraded: "
                    "releases 0.19 to 0.25 pinned flashinfer-cubin, later ones don't.",
                    [part.evidence(f"=={main.versions.exact}"), main.evidence()],
                    [
                        Fix(
                            "Remove the left-over part; kernels are then compiled or fetched when needed.",
                            f"uv pip uninstall {name}",
                        ),
                        Fix(
                            "Or install the same version, where it exists.",
                            f"uv pip install '{name}=={main.versions.exact}'",
                        ),
                    ],
                    _SOURCES,
                    "maintainer-confirmed",
                    explains=["flashinfer-cubin-mismatch"],
                )
            )
    vllm = read.version(facts, "pkg.vllm")
    release = tables.release(vllm.versions) if vllm else None
    pin = tables.version_of(release.flashinfer) if release else None
    if vllm is None or pin is None or pin.exact is None or not vllm.is_release:
        return CHECK.ok("the parts of FlashInfer that are listed have one version")
    if pin.exact == main.versions.exact:
        return CHECK.ok(f"FlashInfer is the pinned {pin.text}, and its parts agree")
    return CHECK.found(
        read.finding(
            "flashinfer-not-the-pinned-one",
            f"vLLM {vllm.versions.exact} pins FlashInfer {pin.text}",
            "backend-choice",
            "info",
            "vLLM calls FlashInfer functions whose arguments change between releases; another version works as long as none "
            "of those is reached.",
            [main.evidence(f"=={pin.text}"), vllm.evidence()],
            [Fix("Install the pinned version.", f"uv pip install 'flashinfer-python=={pin.text}'")],
            tables.sources("vllm"),
            "measured",
        )
    )


CHECK = Check("flashinfer-parts", "FlashInfer's parts against each other and against vLLM's pin", run)
