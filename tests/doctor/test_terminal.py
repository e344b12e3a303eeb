"""What people read at the end of a diagnosis."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hybridctl.doctor.diagnose import Inputs, diagnose
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.terminal import render

OFFER = "hybridctl kernels check"


@pytest.mark.parametrize(
    ("source", "capability", "offered"),
    [
        ("local", "9.0", True),
        ("local", "12.0", True),
        ("local", "7.5", False),
        ("env", "9.0", False),
        ("local", "", False),
    ],
)
def test_a_check_of_the_kernels_is_offered_where_this_machines_gpu_runs_them(
    source: str, capability: str, offered: bool
) -> None:
    diagnosis = diagnose(Inputs(env="driver 580.65.06"))
    diagnosis.facts = Facts()
    if capability:
        diagnosis.facts.add("gpu.cc", capability, Origin(source, None, "asked"))
    console = Console(file=io.StringIO(), width=100, highlight=False, markup=False)
    for item in render(diagnosis):
        console.print(item)
    assert (OFFER in console.file.getvalue()) is offered  # type: ignore[attr-defined]
