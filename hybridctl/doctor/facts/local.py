"""Facts of this machine and of one Python environment on it."""

from __future__ import annotations

from hybridctl.doctor.facts.child import ChildError
from hybridctl.doctor.facts.local_dists import plugin_facts
from hybridctl.doctor.facts.local_nvml import finish_nvml, start_nvml
from hybridctl.doctor.facts.local_packages import other_interpreter, package_facts, this_interpreter
from hybridctl.doctor.facts.local_system import system_facts
from hybridctl.doctor.facts.local_vllm import vllm_facts
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Unknown


def collect_local(python: str | None = None) -> tuple[Facts, list[Unknown]]:
    """Look at the machine. Takes as long as the driver needs to answer, at most 2 s, and 3 s more for another Python.

    Args:
        python: another interpreter whose packages are to be read, or the folder of its virtual environment.

    Returns:
        The facts, and what could not be looked at.

    Raises:
        UsageError: ``python`` is no interpreter.
    """
    facts = Facts()
    unknown: list[Unknown] = []
    try:
        nvml = start_nvml()
    except ChildError as error:
        nvml = None
        unknown.append(Unknown("NVIDIA driver and GPUs", str(error)))
    facts.extend(system_facts())
    try:
        interpreter = this_interpreter() if python is None else other_interpreter(python)
    except ChildError as error:
        unknown.append(Unknown("installed packages", f"an answer from {python}: {error}"))
    else:
        packages, missing = package_facts(interpreter)
        facts.extend(packages)
        unknown += missing
        facts.extend(vllm_facts(interpreter.path))
        facts.extend(plugin_facts(interpreter.path))
    if nvml is not None:
        found, missing = finish_nvml(nvml)
        facts.extend(found)
        unknown += missing
    return facts, unknown
