"""Is the C++ library of a conda environment older than the compiler that kernels are built with?"""

from __future__ import annotations

from hybridctl.data import read_table
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import is_for_gpu, runs_in_image
from hybridctl.doctor.findings import Fix, Outcome, Severity

_SOURCES = [
    "https://github.com/kvcache-ai/ktransformers/issues/439",
    "https://github.com/kvcache-ai/ktransformers/issues/524",
    "https://github.com/pytorch/pytorch/issues/157709",
]


def run(context: Context) -> Outcome:
    facts = context.facts
    conda = facts.get("python.conda")
    if conda is None:
        return CHECK.unknown("python.conda of this machine")
    if conda.value is not True:
        return CHECK.not_applicable("no conda environment")
    if runs_in_image(facts):
        return CHECK.not_applicable("the image has libraries of its own")
    if read.past(facts, "profile"):
        return CHECK.not_applicable("the log shows that everything was loaded")
    own, system = read.version(facts, "python.libstdcxx"), read.version(facts, "platform.libstdcxx")
    if own is None or system is None or own.versions.lowest is None or system.versions.lowest is None:
        return CHECK.unknown("python.libstdcxx and platform.libstdcxx")
    if own.versions.lowest >= system.versions.lowest:
        return CHECK.ok(f"conda's C++ library {own.text} is no older than the system's {system.text}")
    prefix = conda.origin.quote.removesuffix("conda-meta")
    compiler = facts.get("python.compiler")
    if compiler is not None and prefix != conda.origin.quote and str(compiler.value).startswith(prefix):
        return CHECK.ok("the compiler is conda's own")
    compiles = [fact for key in ("pkg.flashinfer-python", "pkg.deep-gemm", "pkg.ninja") if (fact := facts.get(key))]
    severity: Severity = "warning" if is_for_gpu(facts) and compiles else "info"
    symbols = f"GLIBCXX_3.4.{system.text.rpartition('.')[2]}"
    return CHECK.found(
        read.finding(
            "libstdcxx-too-old",
            f"conda's C++ library ({own.text}) is older than the system's ({system.text})",
            "torch-abi",
            severity,
            "Python of a conda environment loads conda's libstdc++. What the system's compiler builds at run time (FlashInfer, "
            f"extensions from source) may need the newer one, and then fails to load: 'version `{symbols}' not found'.",
            [own.evidence(f">={system.text}"), system.evidence(), *(read.quote(fact) for fact in compiles[:1])],
            [
                Fix("Bring conda's up to date.", f"conda install -c conda-forge 'libstdcxx-ng>={_gcc(system.text)}'"),
                Fix("Or compile with conda's compiler.", "conda install -c conda-forge gxx"),
            ],
            _SOURCES,
            "reporter-confirmed",
        )
    )


def _gcc(library: str) -> str:
    """The first GCC release that brought this library."""
    table = read_table("libstdcxx.toml")["gcc"]
    return str(table.get(library, max(table.values(), key=int)))


CHECK = Check("libstdcxx", "conda's C++ library", run, phase="import")
