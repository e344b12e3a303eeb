"""The NVIDIA driver and GPUs of this machine, through NVML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hybridctl
from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.doctor.facts.gpu_facts import gpu_statements
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.facts.statements import GpuRow
from hybridctl.doctor.findings import Unknown

SECONDS = 2.0
_CHECK = "NVIDIA driver and GPUs"


def start_nvml() -> Child:
    """Begin to ask.

    Raises:
        ChildError: no process can be started.
    """
    # In the folder of the package, so that nothing in the user's own folder is imported in place of it.
    home = str(Path(hybridctl.__file__).resolve().parent.parent)
    return Child([sys.executable, "-m", "hybridctl.doctor.facts._nvml_child"], home)


def finish_nvml(child: Child) -> tuple[list[Fact], list[Unknown]]:
    """What the driver answered. A machine without an NVIDIA driver gives no fact and one unknown, which is no error."""
    try:
        document = child.answer(SECONDS)
    except ChildError as error:
        return [], [Unknown(_CHECK, f"an answer from NVML: {error}")]
    return nvml_facts(document)


def nvml_facts(document: Any) -> tuple[list[Fact], list[Unknown]]:
    """Facts of the document that :mod:`_nvml_child` writes."""
    if not isinstance(document, dict) or "missing" in document:
        why = document.get("missing") if isinstance(document, dict) else "an answer that can't be read"
        return [], [Unknown(_CHECK, str(why))]
    facts: list[Fact] = []
    unknown: list[Unknown] = []
    if driver := document.get("driver"):
        facts.append(local_fact("driver.version", driver, f"NVML driver version {driver}"))
    if cuda := document.get("cuda"):
        facts.append(
            local_fact("driver.cuda", f"{cuda // 1000}.{cuda % 1000 // 10}", f"NVML CUDA driver version {cuda}")
        )
    listing = [
        GpuRow(
            name=gpu["name"],
            line=0,
            quote=f"NVML device {index}: {gpu['name']}",
            memory_gib=round(gpu["memory"] / 1024**3, 2) if gpu["memory"] else None,
            memory_quote=f"NVML device {index}: {gpu['memory']} bytes",
            cc=gpu["cc"],
        )
        for index, gpu in enumerate(document.get("gpus", []))
        if gpu["name"]
    ]
    facts += _ranked(listing)
    if not listing:
        unknown.append(Unknown("GPUs", "a GPU that the NVIDIA driver lists; it lists none"))
    return facts, unknown


def _ranked(listing: list[GpuRow]) -> list[Fact]:
    """Where the driver states and the table knows one key, what the driver states."""
    best: dict[str, Fact] = {}
    for s in sorted(gpu_statements(listing), key=lambda s: s.rank):
        best.setdefault(s.key, local_fact(s.key, s.value, s.quote))
    return list(best.values())
