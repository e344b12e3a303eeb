"""Can Triton compile its launcher? It needs a C compiler and the headers of the Python in use, at the first kernel."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome, Severity

_SOURCE = "https://github.com/triton-lang/triton/blob/main/python/triton/runtime/build.py"
# Their recurrent layers are Triton kernels in vLLM.
_TRITON_LAYERS = {"gdn", "kda", "mamba1", "mamba2", "lightning", "short-conv"}


def _severity(facts: Facts) -> Severity:
    layers = facts.value("model.layers")
    return "error" if isinstance(layers, list) and _TRITON_LAYERS & set(layers) else "warning"


def _compiler(facts: Facts) -> Finding | bool | None:
    fact = facts.get("python.compiler")
    if fact is None:
        return None
    if fact.value != "not found":
        return True
    return read.finding(
        "c-compiler-missing",
        "No C compiler, so Triton can not build its launcher",
        "kernel-compile",
        _severity(facts),
        "Triton and Inductor compile small C files at run time, with CC, else gcc, else clang. None of them is here. What an "
        "earlier run compiled is still in their caches.",
        [read.quote(fact, "a C compiler")],
        [
            Fix("Install one.", "sudo apt-get update && sudo apt-get install -y build-essential"),
            Fix("Or name the one that you have.", "export CC=/path/to/gcc"),
        ],
        [_SOURCE, "https://github.com/vllm-project/vllm/issues/2997"],
        "reporter-confirmed",
    )


def _headers(facts: Facts) -> Finding | bool | None:
    fact = facts.get("python.headers")
    if fact is None or not isinstance(fact.value, bool):
        return None
    if fact.value:
        return True
    python = read.version(facts, "platform.python")
    short = ".".join(python.text.split(".")[:2]) if python else "3"
    return read.finding(
        "python-headers-missing",
        "Python headers are missing, so Triton can not build its launcher",
        "kernel-compile",
        _severity(facts),
        "Triton and Inductor compile a small C extension at run time, which includes Python.h of the Python in use. System "
        "Pythons have it in a package of its own.",
        [read.quote(fact, "Python.h"), *([python.evidence()] if python else [])],
        [
            Fix("Install the headers of this Python.", f"sudo apt-get install -y python{short}-dev"),
            Fix(
                "Or make the environment with a Python that brings them.", f"uv venv --python {short} --managed-python"
            ),
        ],
        [_SOURCE, "https://github.com/sgl-project/sglang/issues/1117"],
        "reporter-confirmed",
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.is_cpu_build(facts) or facts.value("torch.build") == "cpu":
        return CHECK.not_applicable("a build for processors starts no Triton kernel on a GPU")
    if facts.value("platform.os") == "windows":
        return CHECK.not_applicable("vLLM does not run on Windows itself")
    if facts.get("torch.build") is None and facts.get("pkg.vllm") is None:
        return CHECK.unknown("an environment with torch or vLLM")
    if read.past(facts, "profile"):
        return CHECK.not_applicable("the log shows kernels that were compiled")
    results = [_compiler(facts), _headers(facts)]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if None in results:
        return CHECK.unknown("python.compiler and python.headers of this machine")
    return CHECK.ok(f"{facts.value('python.compiler')} and Python.h are there")


CHECK = Check("build-tools", "Compiler and headers for Triton", run, phase="profile")
